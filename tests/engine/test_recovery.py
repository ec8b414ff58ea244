"""What the last failure of a handler leads to: `execute` all the same, a recovery Step, or the end of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from dexflows import (
    RetryPolicy,
    StepMovement,
    StepOptions,
    Timer,
    Wait,
    WaitForFailure,
    dead_end,
    go_to,
    graceful_complete,
)
from dexflows.engine import rescue, transitions
from dexflows.registry import registry
from tests.engine.kit import Lab, end_lease, make_due, rows, step, steps, value
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

ONCE = RetryPolicy(maximum_attempts=1)
TWICE = RetryPolicy(initial_interval=0, maximum_attempts=2)
PLAN = '{"wait_for": {"timeout": 60, "load": null}, "execute": {"timeout": 60, "load": null}}'


def boom(context: Any, input: str) -> Any:
    raise RuntimeError("boom")


def too_slow(context: Any, input: str) -> Any:
    time.sleep(60)


def unstorable(context: Any, input: str) -> Any:
    LabFlow.c.set(context, "text")


def run_out(lab: Lab, run: UUID) -> None:
    """Run everything, also what backs off."""
    lab.run_all()
    while keys := make_due(run):
        for key in keys:
            lab.run(key)
        lab.run_all()


def lose(lab: Lab, run: UUID, name: str) -> None:
    """Claim an attempt as a worker that is never heard of again, and let its lease end."""
    lab.bell.take()
    assert transitions.claim(lab.key(run, name), "gone", PLAN).outcome == "claimed"
    end_lease(run, name)
    assert rescue.rescue_expired(10) == 1


class Seen:
    """An `execute` that notes what it sees, and fails in its first attempt."""

    def __init__(self) -> None:
        self.attempts: list[Any] = []

    def __call__(self, context: Any, input: str) -> Any:
        error = context.recovery_error
        self.attempts.append((context.attempt, context.wait_for_method_failed(), error and error.error_type))
        if context.attempt == 1:
            raise RuntimeError("once more")
        return graceful_complete(input)


def proceeding(seen: Seen, wait: Any, **options: Any) -> WaitingLabStep:
    return WaitingLabStep(
        "Y",
        seen,
        wait=wait,
        wait_for_failure=WaitForFailure.PROCEED,
        execute_retry=TWICE,
        **{"wait_for_retry": ONCE, **options},
    )


@pytest.mark.parametrize(("wait", "failed"), [(boom, "RuntimeError"), (too_slow, "MethodTimeoutError")])
def test_a_failed_wait_for_that_proceeds_goes_on_to_a_fresh_execute_that_knows_it(
    lab: Lab, wait: Any, failed: str
) -> None:
    seen = Seen()
    lab.define(proceeding(seen, wait, wait_for_method_timeout=0.2, wait_for_lock_attributes=(LabFlow.c.lock(),)))
    run = lab.start(input="the input")
    (key,) = lab.bell.take()
    lab.run(key)
    assert (step(run, "Y-1"), step(run, "Y-1", "method"), step(run, "Y-1", "attempt")) == ("QUEUED", "execute", 0)
    assert step(run, "Y-1", "failure ->> 'error_type'") == failed
    assert lab.bell.names() == ["Y-1"], "it is rung for at once"
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    run_out(lab, run)
    assert seen.attempts == [(1, True, None), (2, True, None)]
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "the input"


def test_a_wait_for_that_is_lost_with_its_worker_proceeds_after_its_last_attempt_only(lab: Lab) -> None:
    seen = Seen()
    lab.define(proceeding(seen, None, wait_for_retry=TWICE))
    run = lab.start()
    lose(lab, run, "Y-1")
    assert (step(run, "Y-1"), step(run, "Y-1", "method")) == ("BACKOFF", "wait_for")
    make_due(run)
    lose(lab, run, "Y-1")
    assert (step(run, "Y-1"), step(run, "Y-1", "method")) == ("QUEUED", "execute")
    assert lab.bell.names() == ["Y-1"]
    run_out(lab, run)
    assert seen.attempts == [(1, True, None), (2, True, None)]


def test_a_wait_for_that_succeeds_in_the_end_has_not_failed(lab: Lab) -> None:
    seen = Seen()

    def wait(context: Any, input: str) -> Any:
        if context.attempt == 1:
            raise RuntimeError("boom")
        return Wait.until(Timer.by_duration(0))

    lab.define(proceeding(seen, wait, wait_for_retry=TWICE))
    run_out(lab, lab.start())
    assert seen.attempts == [(1, False, None), (2, False, None)]


@pytest.mark.parametrize("lost", [False, True])
def test_a_failed_wait_for_fails_the_run_by_default(lab: Lab, lost: bool) -> None:
    lab.define(WaitingLabStep("Y", wait=boom, wait_for_retry=ONCE))
    run = lab.start()
    lose(lab, run, "Y-1") if lost else lab.run_all()
    ended = lab.client.wait_for_flow("flow", 0)
    assert (ended.status, ended.error_type) == ("FAILED", "WORKER_API_FAILED")
    assert steps(run) == {"Y-1": "FAILED"}


def recovering(handler: Any = boom, seen: Seen | None = None, **options: Any) -> tuple[LabStep, LabStep]:
    fallback = WaitingLabStep("Fallback", seen or Seen(), execute_retry=TWICE)
    return LabStep("Y", handler, **{"execute_retry": ONCE, "recovery_step": fallback, **options}), fallback


@pytest.mark.parametrize(
    ("handler", "retry", "failed"),
    [
        (boom, TWICE, "RuntimeError"),
        (too_slow, ONCE, "MethodTimeoutError"),
        (unstorable, RetryPolicy(), "ValueMappingError"),
    ],
)
def test_after_its_last_failure_a_step_hands_its_input_and_the_reason_to_its_recovery_step(
    lab: Lab, handler: Any, retry: RetryPolicy, failed: str
) -> None:
    seen = Seen()
    y, fallback = recovering(handler, seen, execute_retry=retry, execute_method_timeout=0.2)
    reasons: list[Any] = []
    fallback.wait = lambda context, input: reasons.append(context.recovery_error)  # type: ignore[attr-defined]
    lab.define(y, fallback)
    run = lab.start(input="the input")
    run_out(lab, run)
    assert steps(run) == {"Y-1": "FAILED", "Fallback-1": "COMPLETED"}
    assert step(run, "Y-1", "failure ->> 'error_type'") == failed
    assert step(run, "Fallback-1", "from_step") == "Y-1"
    assert [reason.error_type for reason in reasons] == [failed]
    assert reasons[0].detail == step(run, "Y-1", "failure ->> 'detail'")
    assert seen.attempts == [(1, False, failed), (2, False, failed)]
    ended = lab.client.wait_for_flow("flow", 0)
    assert (ended.status, ended.single_output(str)) == ("COMPLETED", "the input")


def test_a_step_that_is_lost_with_its_worker_is_recovered_from_too(lab: Lab) -> None:
    seen = Seen()
    y, fallback = recovering(seen=seen)
    lab.define(y, fallback)
    run = lab.start()
    lose(lab, run, "Y-1")
    assert lab.bell.names() == ["Fallback-1"]
    run_out(lab, run)
    assert seen.attempts == [(1, False, "WorkerLost"), (2, False, "WorkerLost")]


def test_a_process_that_does_not_know_the_flow_leaves_the_decision_to_one_that_does(lab: Lab) -> None:
    seen = Seen()
    y, fallback = recovering(seen=seen)
    lab.define(y, fallback)
    run = lab.start()
    with registry.isolated():
        lose(lab, run, "Y-1")
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("BACKOFF", 1)
    assert step(run, "Y-1", "failure ->> 'error_type'") == "WorkerLost"
    run_out(lab, run)
    assert steps(run) == {"Y-1": "FAILED", "Fallback-1": "COMPLETED"}
    assert seen.attempts == [(1, False, "WorkerLost"), (2, False, "WorkerLost")]


def test_the_options_of_a_movement_can_name_another_recovery_step_and_another_policy(lab: Lab) -> None:
    other = LabStep("Other", lambda context, input: dead_end())
    y, fallback = recovering()
    options = StepOptions(execute_retry=ONCE).on_execute_failure_proceed_to(other)
    lab.define(LabStep("Begin", lambda context, input: go_to(y, "", options)), y, fallback, other)
    run = lab.start()
    run_out(lab, run)
    assert steps(run) == {"Begin-1": "COMPLETED", "Y-1": "FAILED", "Other-1": "COMPLETED"}
    (key,) = lab.create(StepMovement.of(y, "", options))
    lose(lab, run, key.step_execution_id)
    assert lab.bell.names() == ["Other-2"]


def test_stored_options_whose_recovery_step_is_gone_fail_the_attempt_with_that_reason(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    stored = '{"recovery_step": "Gone"}'
    rows("UPDATE dexflows_step_execution SET options = %s", stored)
    lab.run_all()
    assert step(run, "Y-1", "failure ->> 'error_type'") == "StoredOptionsError"
    assert "Gone" in step(run, "Y-1", "failure ->> 'detail'")


def test_a_recovery_step_may_have_one_of_its_own_and_runs_on_its_own_queue(lab: Lab) -> None:
    last = LabStep(
        "Last", lambda context, input: graceful_complete(context.recovery_error.detail), worker_target="slow"
    )
    middle = LabStep("Middle", unstorable, recovery_step=last)
    lab.define(LabStep("Y", boom, execute_retry=ONCE, recovery_step=middle), middle, last)
    run = lab.start()
    lab.run_all()
    assert steps(run) == {"Y-1": "FAILED", "Middle-1": "FAILED", "Last-1": "COMPLETED"}
    assert step(run, "Last-1", "queue") == "slow"
    assert "expected int" in lab.client.wait_for_flow("flow", 0).single_output(str)


def test_a_recovery_frees_the_locks_and_leaves_the_other_branches_alone(lab: Lab) -> None:
    y, fallback = recovering(execute_lock_attributes=(LabFlow.c.lock(),))
    other = LabStep("Other")
    lab.define(y, fallback, other)
    run = lab.start()
    lab.create(other)
    lab.run(lab.key(run, "Y-1"))
    assert steps(run) == {"Y-1": "FAILED", "Fallback-1": "QUEUED", "Other-1": "QUEUED"}
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


def test_a_result_that_is_dropped_recovers_nothing(lab: Lab) -> None:
    def stopped(context: Any, input: str) -> Any:
        lab.client.stop_flow("flow")
        raise RuntimeError("boom")

    y, fallback = recovering(stopped)
    lab.define(y, fallback)
    run = lab.start()
    lab.run_all()
    assert steps(run) == {"Y-1": "CANCELED"}


def test_the_failure_that_was_the_last_is_told_when_the_code_allows_no_further_attempt(lab: Lab) -> None:
    y = LabStep("Y", boom, execute_retry=RetryPolicy(initial_interval=0))
    lab.define(y)
    run = lab.start()
    for _ in range(3):
        lab.run(lab.key(run, "Y-1"))
        make_due(run)
    with registry.isolated():
        lab.define(LabStep("Y", boom, execute_retry=ONCE))
        lab.run(lab.key(run, "Y-1"))
    assert lab.client.wait_for_flow("flow", 0).error_message == "RuntimeError: boom"


def test_attempts_are_counted_through_failures_and_crashes(lab: Lab) -> None:
    """FLW-11: at most 5; fail, fail, killed, fail: the next one is the fifth, and the last."""
    attempts: list[int] = []

    def work(context: Any, input: str) -> Any:
        attempts.append(context.attempt)
        raise RuntimeError("boom")

    lab.define(LabStep("Y", work, execute_retry=RetryPolicy(initial_interval=0, maximum_attempts=5)))
    run = lab.start()
    act: list[Callable[[], Any]] = [lambda: lab.run(lab.key(run, "Y-1"))] * 2
    for each in (*act, lambda: lose(lab, run, "Y-1"), *act):
        each()
        make_due(run)
    assert attempts == [1, 2, 4, 5]
    assert steps(run) == {"Y-1": "FAILED"}


def test_the_executions_of_a_loop_do_not_add_up_to_attempts(lab: Lab) -> None:
    """FLW-06: what waited and ran often and then fails once backs off like the first time."""

    def work(context: Any, input: str) -> Any:
        if int(input) < 200:
            return go_to(loop, str(int(input) + 1))
        raise RuntimeError("once")

    loop = WaitingLabStep("Y", work, wait=lambda context, input: Wait.until(Timer.by_duration(0)))
    lab.define(loop)
    run = lab.start(input="1")
    lab.run_all()
    assert (step(run, "Y-200"), step(run, "Y-200", "attempt")) == ("BACKOFF", 1)
    assert step(run, "Y-200", "due_at - clock_timestamp() <= interval '1 s'")


def test_what_failed_together_is_not_retried_together(lab: Lab) -> None:
    """FLW-07."""
    lab.define(LabStep("Y", boom, execute_retry=RetryPolicy(initial_interval=100)))
    lab.start()
    lab.create(*[lab.flow.steps[0]] * 30)
    for number in range(1, 31):
        lab.run(lab.key(value("SELECT run_id FROM dexflows_run"), f"Y-{number}"))
    spread = value("SELECT extract(epoch FROM max(due_at) - min(due_at)) FROM dexflows_step_execution")
    assert spread > 20


def test_the_last_failure_is_visible_while_a_step_is_retried(lab: Lab) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        if context.attempt == 1:
            raise RuntimeError("boom")
        seen.append(step(UUID(context.run_id), "Y-1", "failure ->> 'detail'"))
        return dead_end()

    lab.define(LabStep("Y", work, execute_retry=TWICE))
    run = lab.start()
    lab.run_all()
    make_due(run)
    assert (step(run, "Y-1"), step(run, "Y-1", "failure ->> 'detail'")) == ("QUEUED", "boom")
    lab.run(lab.key(run, "Y-1"))
    assert seen == ["boom"]
