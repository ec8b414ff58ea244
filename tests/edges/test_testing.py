"""`dexflows.testing`: Flows by a clock that the test moves, in the test's transaction or with real connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import IntegrityError, connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from dexflows import (
    Client,
    Context,
    DexflowsError,
    FlowNotFoundError,
    LongPollTimeoutError,
    RetryPolicy,
    RPCResult,
    StartFlowOptions,
    StepDecision,
    StepExecutionId,
    StepMovement,
    SubFlow,
    Timer,
    TimerId,
    Wait,
    force_fail,
    go_to,
    go_to_many,
    graceful_complete,
    retry_after,
    sql,
)
from dexflows.engine import doorbell
from dexflows.registry import registry
from dexflows.testing import LiveFlows, NotIdleError, VirtualFlows, live_flows, virtual_flows
from tests.engine.kit import Pause, in_thread, result, rows, value
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

    def test_timers_jump_and_messages_end_a_wait_at_once(self, flows: VirtualFlows) -> None:
        seen: list[bool] = []

        def end(context: Context, input: str) -> StepDecision:
            seen.append(context.has_timer_fired())
            return graceful_complete("")

        step = WaitingLabStep("A", end, lambda context, input: wait)
        wait = Wait.any_of(Timer.by_duration(DAY), LabFlow.ch.for_one())
        started(step, flow_id="patient")
        client.start_flow(LabFlow, "called", "")
        assert flows.advance(DAY - SECOND) == 2
        client.publish("called", LabFlow.ch, 1)
        assert [flows.run(), status("called"), status("patient")] == [1, "COMPLETED", "RUNNING"]
        assert [flows.run_until_idle(), status("patient")] == [1, "COMPLETED"]
        assert seen == [False, True]

    def test_a_skipped_timer_fires_at_once(self, flows: VirtualFlows) -> None:
        started(
            WaitingLabStep("A", lambda c, i: graceful_complete(""), lambda c, i: Wait.until(Timer.by_duration(DAY)))
        )
        flows.run()
        client.skip_timer("flow", StepExecutionId("A"), TimerId.by_condition_index(0))
        assert [flows.run(), status()] == [1, "COMPLETED"]

    def test_a_start_is_delayed_and_a_timeout_comes(self, flows: VirtualFlows) -> None:
        flow = registry.register(LabFlow(Naps("A", 6_000.0)))
        options = StartFlowOptions(start_delay=DAY, timeout=DAY + 100 * SECOND)
        client.start_flow(flow, "flow", "", options)
        assert [flows.advance(DAY - SECOND), flows.advance(SECOND)] == [0, 1]
        before = flows.now
        assert flows.run_until_idle() == 0
        outcome = client.wait_for_flow("flow", 0)
        assert (outcome.error_type, flows.now - before) == ("FLOW_TIMEOUT", 100 * SECOND)

    def test_a_failed_flow_is_retried(self, flows: VirtualFlows) -> None:
        def fail_twice(context: Context, input: str) -> StepDecision:
            runs.append(context.run_id)
            return force_fail("no") if len(runs) < 3 else graceful_complete("")

        runs: list[str] = []
        flow = registry.register(LabFlow(LabStep("A", fail_twice)))
        policy = RetryPolicy(initial_interval=3_600, maximum_interval=3_600)
        client.start_flow(flow, "flow", "", StartFlowOptions(retry_policy=policy))
        assert flows.run_until_idle() == 3
        assert (status(), len(set(runs))) == ("COMPLETED", 3)

    def test_sub_flows_run_too(self, flows: VirtualFlows) -> None:
        child = registry.register(Quick(Naps("Child", 60.0)))
        parent = WaitingLabStep(
            "Parent", lambda context, input: graceful_complete(""), lambda c, i: Wait.until(SubFlow.run(child, ""))
        )
        started(parent)
        assert flows.run_until_idle() == 4
        assert status() == "COMPLETED"

    def test_a_wait_costs_five_round_trips_however_many_went_before(self, flows: VirtualFlows) -> None:
        def loop(context: Context, input: str) -> StepDecision:
            return graceful_complete("") if input == "1" else go_to(step, str(int(input or 100) - 1))

        step = WaitingLabStep("Loop", loop, lambda context, input: Wait.until(Timer.by_duration(1)))
        started(step)
        before, statements = flows.now, CaptureQueriesContext(connection)
        with statements:
            assert flows.run_until_idle() == 200
        assert flows.now - before == 100 * SECOND
        assert len(statements) <= 5 * 100 + 5


class Quick(LabFlow):
    """A second Flow type."""


class TestFailures:
    def test_a_heartbeat_is_part_of_the_tests_transaction(self, flows: VirtualFlows) -> None:
        seen: list[Any] = []

        def work(context: Context, input: str) -> StepDecision:
            seen.append((context.get_last_heartbeat(int), context.heartbeat(context.attempt)))
            if context.attempt == 1:
                raise retry_after(5)
            return graceful_complete("")

        started(LabStep("A", work))
        flows.run_until_idle()
        assert seen == [(None, True), (1, True)]

    def test_a_database_error_fails_its_attempt_and_nothing_else(self, flows: VirtualFlows) -> None:
        def insert(context: Context, input: str) -> StepDecision:
            Group.objects.create(name=f"attempt {context.attempt}")
            if context.attempt == 1:
                Group.objects.create(name="there")
            return graceful_complete("")

        Group.objects.create(name="there")
        started(LabStep("A", insert))
        assert flows.run_until_idle() == 2
        assert status() == "COMPLETED"
        assert set(Group.objects.values_list("name", flat=True)) == {"there", "attempt 2"}

    def test_an_atomic_step_that_raises_leaves_nothing(self, flows: VirtualFlows) -> None:
        def insert(context: Context, input: str) -> StepDecision:
            Group.objects.create(name=f"attempt {context.attempt}")
            if context.attempt == 1:
                raise IntegrityError("no")
            return graceful_complete("")

        started(LabStep("A", insert, execute_atomic=True))
        flows.run_until_idle()
        assert list(Group.objects.values_list("name", flat=True)) == ["attempt 2"]

    def test_what_a_step_that_is_not_atomic_wrote_stays_when_it_raises(self, flows: VirtualFlows) -> None:
        def insert(context: Context, input: str) -> StepDecision:
            Group.objects.create(name=f"attempt {context.attempt}")
            raise retry_after(60)

        started(LabStep("A", insert))
        flows.advance(60)
        assert Group.objects.count() == 2

    def test_a_handler_that_swallows_a_database_error_is_told_what_to_do(self, flows: VirtualFlows) -> None:
        def insert(context: Context, input: str) -> StepDecision:
            with suppress(IntegrityError):
                Group.objects.create(name="there")
            return graceful_complete("")

        Group.objects.create(name="there")
        started(LabStep("A", insert))
        assert flows.run() == 1
        message = client.wait_for_flow("flow", 0).error_message
        assert message is not None
        assert "let it try the statement in a transaction.atomic() block" in message

    def test_a_result_that_the_database_refuses_fails_its_attempt(self, flows: VirtualFlows) -> None:
        def publish(context: Context, input: str) -> StepDecision:
            if context.attempt == 1:
                LabFlow.c.set(context, 1)
                context.channels.deleted.append((("ch", ""), 7))
            return graceful_complete("")

        started(LabStep("A", publish))
        assert flows.run_until_idle() == 2
        assert [status(), client.get_attribute("flow", LabFlow.c)] == ["COMPLETED", 0]

    @pytest.mark.parametrize("atomic", [True, False])
    def test_a_foreign_key_that_a_commit_would_refuse_fails_the_attempt(
        self, flows: VirtualFlows, atomic: bool
    ) -> None:
        def work(context: Context, input: str) -> StepDecision:
            Permission.objects.create(name="dangling", codename="dangling", content_type_id=424242)
            return graceful_complete()

        started(LabStep("S", work, execute_atomic=atomic, execute_retry=RetryPolicy(maximum_attempts=1)))
        flows.run()
        outcome = client.wait_for_flow("flow", 0)
        assert (outcome.status, outcome.error_type) == ("FAILED", "WORKER_API_FAILED")
        assert "foreign key constraint" in (outcome.error_message or "")
        with pytest.raises(DexflowsError, match="foreign key constraint"):
            outcome.single_output(str)
        assert not Permission.objects.filter(codename="dangling").exists()


class TestRollBack:
    def test_everything_is_undone_at_the_end(self, db: None) -> None:
        with virtual_flows() as flows:
            started(LabStep("A", lambda context, input: graceful_complete("")))
            flows.advance(DAY)
            assert flows.now - datetime.now(UTC) > 0.9 * DAY
        with pytest.raises(FlowNotFoundError):
            client.describe_flow("flow")
        assert_clock_is_right()

    def test_also_after_a_failing_test_and_in_a_broken_transaction(self, db: None) -> None:
        with pytest.raises(IntegrityError), virtual_flows():
            Group.objects.bulk_create([Group(name="twice"), Group(name="twice")])
        assert not Group.objects.exists()
        assert_clock_is_right()

    def test_time_goes_back_with_a_transaction_that_is_rolled_back(self, flows: VirtualFlows) -> None:
        step = Naps("A", 60.0)
        started(step)
        flows.run()
        before = flows.now
        with transaction.atomic():
            assert flows.advance(DAY) == 1
            transaction.set_rollback(True)
        assert [flows.now, status()] == [before, "RUNNING"]
        assert flows.advance(60) == 1

    def test_nobody_is_rung(self, flows: VirtualFlows, django_capture_on_commit_callbacks: Any) -> None:
        with django_capture_on_commit_callbacks(execute=True) as callbacks:
            started(LabStep("A"))
        assert callbacks
        assert flows.run() == 1


class TestWithoutPytest(TestCase):
    """The README of `virtual_flows`."""

    def setUp(self) -> None:
        self.enterContext(registry.isolated())
        self.flows = self.enterContext(virtual_flows())

    def test_a_wait_is_over_at_once(self) -> None:
        started(Naps("A", 86.0))
        self.assertEqual(self.flows.run_until_idle(), 2)  # noqa: PT009 - this is how such a test reads
        self.assertEqual(status(), "COMPLETED")  # noqa: PT009


def assert_clock_is_right() -> None:
    """The installed function is the one of its file again, and known as this release's."""
    found = rows("SELECT prosrc, obj_description(oid, 'pg_proc') FROM pg_proc WHERE proname = 'dexflows_now'")
    ((body, mark),) = found
    assert f"$${body}$$" in sql.text("now")
    assert len(mark) == 64
    assert value("SELECT to_regclass('dexflows_test_clock')") is None


@pytest.mark.django_db(transaction=True)
class TestLive:
    def test_steps_run_by_themselves_when_the_clock_is_put_forward(self, flows_live: LiveFlows) -> None:
        wait = Wait.until(Timer.by_duration(DAY))
        started(WaitingLabStep("A", lambda context, input: graceful_complete("end"), lambda context, input: wait))
        before = flows_live.now
        flows_live.wait_until_idle()
        flows_live.advance(DAY)
        assert client.wait_for_flow("flow", 10).single_output(str) == "end"
        assert timedelta() < flows_live.now - before - DAY < timedelta(minutes=1)

    def test_timeouts_come_by_themselves(self, flows_live: LiveFlows) -> None:
        flow = registry.register(LabFlow(start=False))
        client.start_flow(flow, "flow", "", StartFlowOptions(timeout=DAY))
        flows_live.advance(DAY)
        assert client.wait_for_flow("flow", 10).error_type == "FLOW_TIMEOUT"

    def test_a_running_step_keeps_its_lease(self, flows_live: LiveFlows) -> None:
        pause = Pause()

        def stand(context: Context, input: str) -> StepDecision:
            pause.here()
            return graceful_complete("end")

        started(LabStep("A", stand))
        with pause.reached():
            flows_live.advance(DAY)
            left = value("SELECT lease_until - dexflows_now() FROM dexflows_step_execution")
            assert timedelta() < left < timedelta(minutes=1)
            with pytest.raises(NotIdleError, match=r"A-1 of Flow flow \(RUNNING"):
                flows_live.wait_until_idle(0)
            assert abs(result(in_thread(now)) - flows_live.now) < timedelta(minutes=1)
        assert client.wait_for_flow("flow", 10).single_output(str) == "end"

    def test_the_clock_is_right_again_also_after_a_failing_test(self) -> None:
        bell = doorbell.install(doorbell.SilentDoorbell())
        with pytest.raises(ZeroDivisionError):
            fail_in_live_flows()
        assert_clock_is_right()
        assert isinstance(doorbell.install(bell), doorbell.SilentDoorbell)

    def test_without_threads_only_the_clock_is_there(self) -> None:
        with live_flows(threads=0) as live:
            started(LabStep("A"))
            live.advance(DAY)
            assert value("SELECT state FROM dexflows_step_execution") == "QUEUED"


def fail_in_live_flows() -> None:
    with live_flows() as live:
        live.advance(DAY)
        assert rows("SELECT obj_description('dexflows_now()'::regprocedure)") == [(None,)]
        raise ZeroDivisionError


def test_live_flows_refuse_a_transaction(db: None) -> None:
    with pytest.raises(RuntimeError, match="use transactional_db, or a TransactionTestCase"), live_flows():
        pass
