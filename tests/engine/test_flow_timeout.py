"""The timeout of a run: one durable timer, and what each policy makes of it."""

from math import inf
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from dexflows import (
    Context,
    RetryPolicy,
    StartFlowOptions,
    Step,
    StepDecision,
    StepOptions,
    dead_end,
    force_complete,
    force_fail,
    go_to,
    graceful_complete,
)
from dexflows.engine import closing, sweeps
from dexflows.errors import FlowNotActiveOrNotFoundError, InvalidRequestError
from dexflows.registry import registry
from dexflows.states import FlowTimeoutPolicy, RunStatus
from tests.engine.kit import Lab, Pause, in_thread, result, rows, step, steps, value, wait_until_blocked
from tests.flows_lab import LabFlow, LabStep


class TimingOutFlow(LabFlow):
    """Decides at its timeout what the test says."""

    def __init__(self, *steps: Step[Any], start: bool = True) -> None:
        super().__init__(*steps, start=start)
        self.on_timeout: Any = lambda context: force_complete("late")

    def handle_timeout(self, context: Context) -> StepDecision:
        decision: StepDecision = self.on_timeout(context)
        return decision


class AsyncTimingOutFlow(LabFlow):
    """The same with an `async def`."""

    async def handle_timeout(self, context: Context) -> StepDecision:
        return force_complete(f"late {context.step_execution_id}")


def define(lab: Lab, *steps: Step[Any], kind: type[LabFlow] = TimingOutFlow) -> Any:
    lab.flow = registry.register(kind(*steps, start=bool(steps)))
    return lab.flow


def pass_deadline(run: UUID) -> int:
    """Let the run's timeout come, and sweep."""
    rows("UPDATE dexflows_run SET deadline = dexflows_now() WHERE run_id = %s AND deadline IS NOT NULL", run)
    return closing.time_out(100)


def outcome(flow_id: str = "flow") -> tuple[Any, ...]:
    return rows("SELECT status, error_type FROM dexflows_run WHERE flow_id = %s ORDER BY run_number", flow_id)[-1]


HOUR = StartFlowOptions(timeout=3600)


def with_policy(policy: FlowTimeoutPolicy, **options: Any) -> StartFlowOptions:
    return StartFlowOptions(timeout=3600, timeout_policy=policy, **options)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (HOUR, "FAILED"),
        (with_policy(FlowTimeoutPolicy.FAIL), "FAILED"),
        (with_policy(FlowTimeoutPolicy.CANCEL), "CANCELED"),
    ],
)
def test_a_run_closes_at_its_timeout_as_its_policy_says(lab: Lab, options: StartFlowOptions, status: str) -> None:
    lab.define(LabStep("Y"))
    run = lab.start(options=options)
    (key,) = lab.bell.take()
    assert closing.time_out(100) == 0, "it has not come yet"
    assert pass_deadline(run) == 1
    assert outcome() == (status, "FLOW_TIMEOUT")
    assert lab.client.wait_for_flow("flow", 0).error_message == "the run has taken more than its timeout of 3600 s"
    assert steps(run) == {"Y-1": "CANCELED"}
    assert not lab.run(key)
    kinds = [kind for (kind,) in rows("SELECT kind FROM dexflows_event ORDER BY seq")]
    assert kinds == ["FLOW_STARTED", "FLOW_TIMED_OUT", f"FLOW_{status}"]
    assert pass_deadline(run) == 0


def test_the_budget_runs_from_the_start_whatever_the_start_delay(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start(options=StartFlowOptions(timeout=100, start_delay=1000))
    assert value("SELECT deadline - started_at = interval '100 s' FROM dexflows_run")
    assert 90 < sweeps.next_due().deadlines <= 100


def test_a_run_without_a_timeout_has_no_timer(lab: Lab) -> None:
    define(lab)
    run = lab.start()
    assert value("SELECT deadline FROM dexflows_run") is None
    assert sweeps.next_due().first == inf
    assert pass_deadline(run) == 0


def test_the_handler_runs_once_beside_the_open_steps_and_decides(lab: Lab) -> None:
    flow = define(lab, LabStep("Y"))
    run = lab.start(options=HOUR)
    (key,) = lab.bell.take()
    assert pass_deadline(run) == 1
    assert pass_deadline(run) == 0
    assert steps(run) == {"Y-1": "QUEUED", "handle_timeout-1": "QUEUED"}
    (handler,) = lab.bell.take()
    flow.on_timeout = lambda context: (flow.note.set(context, "timed out"), force_complete("late"))[1]
    lab.run(handler)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "late"
    assert lab.client.get_attribute("flow", flow.note) == "timed out"
    assert steps(run) == {"Y-1": "CANCELED", "handle_timeout-1": "COMPLETED"}
    assert not lab.run(key)


def test_the_handler_of_a_flow_without_steps_runs_too(lab: Lab) -> None:
    define(lab)
    run = lab.start(options=HOUR)
    pass_deadline(run)
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "late"


def test_an_async_handler_runs_to_completion(lab: Lab) -> None:
    define(lab, kind=AsyncTimingOutFlow)
    run = lab.start(options=with_policy(FlowTimeoutPolicy.HANDLER))
    pass_deadline(run)
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "late handle_timeout-1"


@pytest.mark.parametrize(
    ("decide", "status"),
    [
        (lambda flow: go_to(flow.steps[1], "more"), RunStatus.COMPLETED),
        (lambda flow: graceful_complete("late"), RunStatus.RUNNING),
        (lambda flow: graceful_complete("late").with_canceling_steps(flow.steps[0]), RunStatus.COMPLETED),
        (lambda flow: dead_end(), RunStatus.RUNNING),
        (lambda flow: force_fail("too late"), RunStatus.FAILED),
    ],
)
def test_the_handlers_decision_is_like_any_steps(lab: Lab, decide: Any, status: RunStatus) -> None:
    flow = define(lab, LabStep("Y"), LabStep("More", lambda context, input: force_complete(input)))
    run = lab.start(options=HOUR)
    lab.bell.take()
    flow.on_timeout = lambda context: decide(flow)
    pass_deadline(run)
    lab.run_all()
    assert lab.client.describe_flow("flow").status is status


def test_the_handler_is_retried_and_its_last_failure_fails_the_run(lab: Lab) -> None:
    flow = define(lab, LabStep("Y"))
    once = StepOptions(execute_retry=RetryPolicy(maximum_attempts=2, initial_interval=0))
    run = lab.start(options=StartFlowOptions(timeout=3600, timeout_handler_options=once))
    lab.bell.take()
    attempts = []

    def raises(context: Context) -> StepDecision:
        attempts.append(context.attempt)
        raise RuntimeError("boom")

    flow.on_timeout = raises
    pass_deadline(run)
    (handler,) = lab.bell.take()
    lab.run(handler)
    assert step(run, "handle_timeout-1") == "BACKOFF"
    lab.run(handler)
    assert attempts == [1, 2]
    assert outcome() == ("FAILED", "WORKER_API_FAILED")


def test_the_handler_has_the_options_that_the_start_gave(lab: Lab) -> None:
    flow = define(lab)
    options = StepOptions(execute_lock_attributes=(LabFlow.c.lock(),), execute_load_attribute_maps=(LabFlow.m,))
    run = lab.start(options=StartFlowOptions(timeout=3600, timeout_handler_options=options))
    lab.client.set_attribute("flow", LabFlow.m, "x", 7)
    held = []

    def handle(context: Context) -> StepDecision:
        held.append((flow.m.get(context, "x"), rows("SELECT key FROM dexflows_lock_hold")))
        return dead_end()

    flow.on_timeout = handle
    pass_deadline(run)
    lab.run_all()
    assert held == [(7, [("c",)])]


def test_a_handler_policy_without_a_handler_is_refused(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    with pytest.raises(InvalidRequestError, match="has no handle_timeout: override it"):
        lab.start(options=with_policy(FlowTimeoutPolicy.HANDLER))


def test_options_of_the_handler_that_do_not_fit_the_flow_are_refused(lab: Lab) -> None:
    define(lab)
    foreign = StepOptions(execute_lock_attributes=(type(LabFlow.c)("other", int).lock(),))
    with pytest.raises(InvalidRequestError, match="timeout_handler_options: Flow TimingOutFlow"):
        lab.start(options=StartFlowOptions(timeout=1, timeout_handler_options=foreign))


def test_a_handler_may_be_passed_over(lab: Lab) -> None:
    define(lab)
    run = lab.start(options=with_policy(FlowTimeoutPolicy.FAIL))
    pass_deadline(run)
    assert outcome() == ("FAILED", "FLOW_TIMEOUT")
    assert lab.bell.take() == []


def test_a_timeout_that_comes_while_the_run_completes_comes_to_nothing(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda context, input: graceful_complete("in time")))
    run = lab.start(options=HOUR)
    (key,) = lab.bell.take()
    rows("UPDATE dexflows_run SET deadline = dexflows_now()")
    completed = Pause()

    def complete() -> None:
        with transaction.atomic():
            lab.run(key)
            completed.here()

    completing = in_thread(complete)
    with completed.reached():
        timing_out = in_thread(lambda: rows("SELECT outcome FROM dexflows_time_out(%s)", run))
        wait_until_blocked("dexflows_time_out")
    result(completing)
    assert result(timing_out) == [("gone",)]
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "in time"


def test_a_completion_that_comes_after_the_timeout_comes_to_nothing(lab: Lab) -> None:
    working = Pause()
    lab.define(LabStep("Y", lambda context, input: (working.here(), graceful_complete("late"))[1]))
    run = lab.start(options=HOUR)
    (key,) = lab.bell.take()
    running = in_thread(lab.run, key)
    with working.reached():
        assert pass_deadline(run) == 1
    result(running)
    assert outcome() == ("FAILED", "FLOW_TIMEOUT")
    assert lab.client.wait_for_flow("flow", 0).completions == ()
    assert steps(run) == {"Y-1": "CANCELED"}
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.stop_flow("flow")


def test_two_sweepers_let_a_timeout_come_once(lab: Lab) -> None:
    define(lab, LabStep("Y"))
    run = lab.start(options=HOUR)
    rows("UPDATE dexflows_run SET deadline = dexflows_now()")
    first = Pause()

    def sweep_and_wait() -> None:
        with transaction.atomic():
            assert closing.time_out(10) == 1
            first.here()

    sweeping = in_thread(sweep_and_wait)
    with first.reached():
        second = in_thread(closing.time_out, 10)
        wait_until_blocked("dexflows_time_out")
    result(sweeping)
    assert result(second) == 0
    assert list(steps(run)) == ["Y-1", "handle_timeout-1"]


def test_a_sweeper_waits_no_longer_than_a_second_for_one_run(lab: Lab) -> None:
    lab.define(start=False)
    run, other = lab.start(options=HOUR), lab.start("other", options=HOUR)
    rows("UPDATE dexflows_run SET deadline = dexflows_now()")
    kept = Pause()

    def keep() -> None:
        with transaction.atomic():
            rows("SELECT FROM dexflows_run WHERE run_id = %s FOR UPDATE", run)
            kept.here()

    keeping = in_thread(keep)
    with kept.reached():
        assert closing.time_out(10) == 1
        assert (outcome()[0], outcome("other")[0]) == ("RUNNING", "FAILED")
    result(keeping)
    assert closing.time_out(10) == 1
    assert outcome()[0] == "FAILED"
    assert other != run
