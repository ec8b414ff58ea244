"""`dexflows.testing`: Flows in a test's transaction by a clock that the test moves, and in threads by one that goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dexflows import (
    Client,
    Context,
    LongPollTimeoutError,
    RetryPolicy,
    RPCResult,
    StepDecision,
    StepMovement,
    go_to,
    go_to_many,
    graceful_complete,
    retry_after,
)
from dexflows.registry import registry
from dexflows.testing import NotIdleError, VirtualFlows
from tests.engine.kit import rows, value
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
client = Client()


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def started(*steps: LabStep, flow_id: str = "flow") -> LabFlow:
    """Register a Flow with these Steps and start it."""
    flow = registry.register(LabFlow(*steps))
    client.start_flow(flow, flow_id, "")
    return flow


def status(flow_id: str = "flow") -> str:
    return client.describe_flow(flow_id).status


class Naps(LabStep):
    """Fails until it has been tried so many times more, with a wait in between."""

    def __init__(self, name: str, *waits: float) -> None:
        super().__init__(name)
        self.waits = list(waits)
        self.at: list[datetime] = []

    def execute(self, context: Context, input: str) -> StepDecision:
        self.at.append(now())
        if self.waits:
            raise retry_after(self.waits.pop(0))
        return graceful_complete(self.name)


def now() -> datetime:
    at: datetime = value("SELECT dexflows_now()")
    return at


class TestRun:
    def test_runs_every_step_and_what_follows(self, flows: VirtualFlows) -> None:
        second = WaitingLabStep("B", lambda context, input: graceful_complete("end"))
        started(LabStep("A", lambda context, input: go_to(second, "")), second)
        with pytest.raises(LongPollTimeoutError):
            client.wait_for_flow("flow", 0)
        assert flows.run() == 3
        assert client.wait_for_flow("flow", 0).single_output(str) == "end"

    def test_does_not_run_what_is_due_later(self, flows: VirtualFlows) -> None:
        step = Naps("A", 1.0)
        started(step)
        assert [flows.run(), flows.run()] == [1, 0]
        assert status() == "RUNNING"

    def test_steps_that_wait_for_a_lock_run_one_after_the_other(self, flows: VirtualFlows) -> None:
        def count(context: Context, input: str) -> StepDecision:
            LabFlow.c.set(context, (LabFlow.c.get(context) or 0) + 1)
            return graceful_complete("")

        counting = LabStep("Count", count, execute_lock_attributes=(LabFlow.c.lock(),))
        fan = LabStep("Fan", lambda context, input: go_to_many(*[StepMovement.of(counting, "")] * 5))
        flow = started(fan, counting)
        assert flows.run() == 6
        assert client.get_attribute("flow", flow.c) == 5

    def test_rpcs_and_client_calls_work_in_between(self, flows: VirtualFlows) -> None:
        step = LabStep("A", lambda context, input: graceful_complete(""))
        flow = registry.register(LabFlow(step, start=False))
        client.start_flow(flow, "flow", "")
        assert [flows.run(), client.invoke_rpc(flow.bump, "flow")] == [0, 1]
        flow.on_call = lambda context: RPCResult("made", next_steps=(StepMovement.of(step, ""),))
        client.invoke_rpc(flow.call, "flow")
        assert flows.run() == 1
        assert status() == "COMPLETED"

    def test_a_flow_that_never_rests_is_named(self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dexflows.testing.virtual.MAX_ATTEMPTS", 100)
        spin = LabStep("Spin", lambda context, input: go_to(spin, ""))
        started(spin)
        with pytest.raises(NotIdleError, match=r"100 attempts ran at one moment.*: Spin-\d+ of Flow flow \(QUEUED"):
            flows.run()

    def test_a_parked_step_keeps_nobody_waiting(self, flows: VirtualFlows) -> None:
        started(LabStep("A"))
        with registry.isolated():
            assert [flows.run(), flows.run_until_idle()] == [0, 0]
        assert value("SELECT parked_reason FROM dexflows_step_execution") is not None


class TestTime:
    def test_stands_still(self, flows: VirtualFlows) -> None:
        before = flows.now
        rows("SELECT pg_sleep(0.002)")
        assert flows.now == before == now()
        assert abs(datetime.now(UTC) - before) < timedelta(minutes=1)

    def test_advance_runs_what_is_due_on_the_way_each_at_its_time(self, flows: VirtualFlows) -> None:
        slow, quick = Naps("Slow", 100.0), Naps("Quick", 60.0, 60.0, 60.0)
        started(slow, flow_id="slow")
        started_at = flows.now
        client.start_flow(registry.register(Quick(quick)), "quick", "")
        assert flows.advance(150) == 2 + 3
        assert flows.now - started_at == 150 * SECOND
        assert [at - started_at for at in slow.at] == [0 * SECOND, 100 * SECOND]
        assert [at - started_at for at in quick.at] == [0 * SECOND, 60 * SECOND, 120 * SECOND]
        assert flows.advance(30 * SECOND) == 1
        assert (status("slow"), status("quick")) == ("COMPLETED", "COMPLETED")

    def test_advance_takes_no_step_back(self, flows: VirtualFlows) -> None:
        with pytest.raises(ValueError, match="what a clock is advanced by must be a finite number of seconds, 0 or"):
            flows.advance(-1)

    def test_run_until_idle_jumps_from_wait_to_wait(self, flows: VirtualFlows) -> None:
        step = Naps("A", 3_600.0, 86.0, 0.25)
        started(step)
        before = flows.now
        assert flows.run_until_idle() == 4
        assert flows.now - before == timedelta(hours=1, seconds=86, milliseconds=250)
        assert client.wait_for_flow("flow", 0).single_output(str) == "A"

    def test_run_until_idle_goes_through_all_attempts_of_a_retry_policy(self, flows: VirtualFlows) -> None:
        policy = RetryPolicy(maximum_attempts=4, initial_interval=3_600, maximum_interval=36_000)
        started(LabStep("A", lambda context, input: 1 / 0, execute_retry=policy))
        assert flows.run_until_idle() == 4
        outcome = client.wait_for_flow("flow", 0)
        assert (outcome.status, outcome.error_message) == ("FAILED", "ZeroDivisionError: division by zero")

    def test_total_duration_is_counted_by_the_same_clock(self, flows: VirtualFlows) -> None:
        def fail(context: Context, input: str) -> StepDecision:
            raise retry_after(3_000)

        started(LabStep("A", fail, execute_retry=RetryPolicy(total_duration=3_600)))
        assert flows.run_until_idle() == 3
        assert status() == "FAILED"

    def test_a_flow_that_waits_for_ever_is_named(self, flows: VirtualFlows) -> None:
        def wait(context: Context, input: str) -> StepDecision:
            raise retry_after(60)

        started(LabStep("Poll", wait, execute_retry=RetryPolicy(total_duration=0)))
        with pytest.raises(NotIdleError, match=r"jumped 20 times, to .*: Poll-1 of Flow flow \(BACKOFF, attempt 21\)"):
            flows.run_until_idle(max_jumps=20)

    def test_a_loop_through_many_waits_is_quick(self, flows: VirtualFlows) -> None:
        """FLW-06: the number of waits that went before costs a wait nothing."""

        def loop(context: Context, input: str) -> StepDecision:
            if context.attempt == 1:
                raise retry_after(1)
            return graceful_complete("") if input == "1" else go_to(step, str(int(input or 300) - 1))

        step = LabStep("Loop", loop)
        started(step)
        before, begun = flows.now, time.monotonic()
        assert flows.run_until_idle() == 600
        assert flows.now - before == 300 * SECOND
        print("seconds", time.monotonic() - begun)


class Quick(LabFlow):
    """A second Flow type."""
