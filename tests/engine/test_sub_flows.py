"""Steps that wait for SubFlows, from `wait_for` to what `execute` reads."""

from collections.abc import Callable
from typing import Any

import pytest

from dexflows import (
    Context,
    RetryPolicy,
    StartFlowOptions,
    StepDecision,
    StepMovement,
    SubFlow,
    Timer,
    Wait,
    dead_end,
    force_fail,
    go_to_many,
    graceful_complete,
)
from dexflows.engine import closing
from dexflows.flow_result import FlowResult
from dexflows.states import RunStatus, WaitForFailure
from dexflows.sub_flow import SubFlowOptions
from tests.engine.kit import Lab, Pause, end_lease, in_thread, make_due, move_clock, result, rows, step, sweep, value
from tests.flows_lab import WaitingLabStep

CHILD = "SubFlow:flow-Y-1-0"


def as_output(context: Context, input: str) -> StepDecision:
    return graceful_complete(input)


class Parent:
    """Starts a parent whose Step Y waits, with SubFlows of the same Flow, and keeps what its `execute` read."""

    def __init__(
        self,
        lab: Lab,
        wait: Callable[[Context], Wait],
        child: Callable[[Context, str], StepDecision] = as_output,
        **options: Any,
    ) -> None:
        self.read: list[FlowResult] = []
        self.fired: list[bool] = []
        self.decision: Callable[[Context], StepDecision] = lambda context: graceful_complete("parent")

        def wait_for(context: Context, input: str) -> Any:
            return wait(context) if input == "parent" else None

        def execute(context: Context, input: str) -> StepDecision:
            if input != "parent":
                return child(context, input)
            self.fired.append(context.has_timer_fired())
            self.read.extend(context.waited.sub_flows.values())
            return self.decision(context)

        lab.define(WaitingLabStep("Y", execute, wait_for, **options))


def children() -> list[tuple[str, str]]:
    return rows("SELECT status, input #>> '{}' FROM dexflows_run WHERE parent_run_id IS NOT NULL ORDER BY flow_id")


def test_execute_reads_how_each_sub_flow_ended_and_a_failure_is_no_failure_of_the_parent(lab: Lab) -> None:
    def child(context: Context, input: str) -> StepDecision:
        return force_fail("no") if input == "bad" else graceful_complete(input)

    both = ("good", "bad")
    parent = Parent(lab, lambda context: Wait.all_of(*(SubFlow.run(lab.flow, each) for each in both)), child)
    seen = []

    def decide(context: Context) -> StepDecision:
        seen.append(SubFlow.get_condition_results(context, 1).error_message)
        return graceful_complete(SubFlow.get_condition_results(context, 0).single_output(str))

    parent.decision = decide
    lab.start(input="parent")
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "good"
    assert seen == ["no"]
    assert [each.status for each in parent.read] == [RunStatus.COMPLETED, RunStatus.FAILED]


def test_a_timer_may_end_the_wait_first_and_the_sub_flow_goes_on(lab: Lab) -> None:
    parent = Parent(lab, lambda context: Wait.any_of(SubFlow.run(lab.flow, "slow"), Timer.by_duration(0)))
    lab.start(input="parent")
    lab.run(lab.bell.take()[0])
    assert lab.client.describe_flow("flow").status is RunStatus.COMPLETED
    assert (parent.fired, [each.status for each in parent.read]) == ([True], [RunStatus.RUNNING])
    assert children() == [("RUNNING", "slow")]
    for key in sweep() + make_due(value("SELECT run_id FROM dexflows_run WHERE flow_id = %s", CHILD)):
        lab.run(key)
    assert lab.client.wait_for_flow(CHILD, 0).single_output(str) == "slow"


def test_sub_flows_that_close_at_once_leave_their_parent_due_without_any_ring(lab: Lab) -> None:
    many = 6
    parent = Parent(lab, lambda context: Wait.all_of(*(SubFlow.run(lab.flow, str(n)) for n in range(many))))
    run = lab.start(input="parent")
    lab.run(lab.bell.take()[0])
    for closed in [in_thread(lab.run, key) for key in lab.bell.take()]:
        assert result(closed)
    lab.bell.take()
    assert step(run, "Y-1") == "WAITING"
    for key in sweep():
        lab.run(key)
    assert [each.single_output(str) for each in parent.read] == [str(n) for n in range(many)]


def test_an_attempt_that_was_superseded_starts_no_sub_flow(lab: Lab) -> None:
    pause = Pause()

    def wait(context: Context) -> Wait:
        if context.attempt == 1:
            pause.here()
        return Wait.until(SubFlow.run(lab.flow, f"of attempt {context.attempt}"))

    Parent(lab, wait, lambda context, input: dead_end())
    run = lab.start(input="parent")
    running = in_thread(lab.run, lab.bell.take()[0])
    with pause.reached():
        end_lease(run, "Y-1")
        assert lab.rescue(run, "Y-1")
    result(running)
    assert children() == []
    for key in make_due(run):
        lab.run(key)
    assert children() == [("RUNNING", "of attempt 2")]


def test_a_retried_parent_finds_its_completed_sub_flow_and_does_not_run_it_again(lab: Lab) -> None:
    parent = Parent(lab, lambda context: Wait.until(SubFlow.run(lab.flow, "once")))
    parent.decision = lambda context: graceful_complete() if len(parent.read) == 2 else force_fail("again")
    policy = RetryPolicy(initial_interval=0, maximum_attempts=2)
    lab.start(input="parent", options=StartFlowOptions(retry_policy=policy))
    lab.run_all()
    assert lab.client.describe_flow("flow").status is RunStatus.COMPLETED
    assert [each.single_output(str) for each in parent.read] == ["once", "once"]
    assert children() == [("COMPLETED", "once")]


def test_a_sub_flow_has_the_timeout_and_the_retries_of_its_start(lab: Lab) -> None:
    policy = RetryPolicy(maximum_attempts=2, initial_interval=0)
    options = SubFlowOptions(start=StartFlowOptions(timeout=10, retry_policy=policy))
    parent = Parent(lab, lambda context: Wait.until(SubFlow.run(lab.flow, "late", options)))
    run = lab.start(input="parent")
    lab.run(lab.bell.take()[0])
    for seconds, left in ((11, "WAITING"), (25, "COMPLETED")):
        lab.bell.take()
        move_clock(seconds)
        assert closing.time_out(10) == 1
        for key in lab.bell.take():
            if key.run_id == run:
                lab.run(key)
        assert step(run, "Y-1") == left
    assert [each.error_type for each in parent.read] == ["FLOW_TIMEOUT"]
    assert children() == [("FAILED", "late")] * 2


@pytest.mark.parametrize("failure", WaitForFailure)
def test_a_sub_flow_that_cannot_be_started_is_a_last_failure_of_wait_for(lab: Lab, failure: WaitForFailure) -> None:
    parent = Parent(lab, lambda context: Wait.until(SubFlow.run(lab.flow, "x")), wait_for_failure=failure)
    parent.decision = lambda context: graceful_complete(context.wait_for_method_failed())
    flow_id = "SubFlow:" + "x" * 1010
    lab.start(flow_id, input="parent")
    lab.run_all()
    ended = lab.client.wait_for_flow(flow_id, 0)
    if failure is WaitForFailure.PROCEED:
        assert ended.single_output(bool)
    else:
        assert (ended.status, ended.error_type) == (RunStatus.FAILED, "WORKER_API_FAILED")
        assert "give the parent a shorter Flow ID" in str(ended.error_message)


def test_a_canceled_step_waits_no_more_and_its_sub_flow_goes_on(lab: Lab) -> None:
    Parent(lab, lambda context: Wait.until(SubFlow.run(lab.flow, "on its own")))
    run = lab.start(input="parent")
    lab.run(lab.bell.take()[0])
    (child,) = lab.bell.take()
    lab.cancel_all(*lab.flow.steps)
    lab.run(child)
    assert step(run, "Y-1") == "CANCELED"
    assert children() == [("COMPLETED", "on its own")]
    assert (lab.bell.take(), sweep()) == ([], [])


def test_a_sub_flow_that_runs_on_has_no_completions_yet(lab: Lab) -> None:
    def child(context: Context, input: str) -> StepDecision:
        branches = (StepMovement.of(lab.flow.steps[0], "branch") for _ in range(2))
        return go_to_many(*branches) if input == "two" else as_output(context, input)

    parent = Parent(lab, lambda context: Wait.any_of(SubFlow.run(lab.flow, "two"), Timer.by_duration(100)), child)
    run = lab.start(input="parent")
    lab.run(lab.bell.take()[0])
    lab.run(lab.bell.take()[0])
    lab.run(lab.bell.take()[0])
    assert value("SELECT count(*) FROM dexflows_step_execution WHERE output IS NOT NULL") == 1
    move_clock(101)
    for key in sweep():
        if key.run_id == run:
            lab.run(key)
    assert [(each.status, each.completions) for each in parent.read] == [(RunStatus.RUNNING, ())]
