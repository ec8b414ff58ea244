"""What comes next: branches, closing, canceling, numbering, and running on in place."""

import asyncio
import threading
from typing import Any

import pytest
from django.db import connection, transaction

from dexflows import (
    RetryPolicy,
    RPCResult,
    StepMovement,
    StepOptions,
    dead_end,
    force_complete,
    force_fail,
    go_to,
    go_to_many,
    graceful_complete,
)
from dexflows.engine import executor
from dexflows.engine.leases import InlineWorker
from dexflows.errors import DexflowsError
from dexflows.registry import registry
from tests.engine.kit import (
    DEADLINE,
    Lab,
    Pause,
    in_thread,
    make_due,
    result,
    rows,
    step,
    steps,
    value,
    wait_until_blocked,
)
from tests.flows_lab import AsyncLabStep, LabFlow, LabStep, WaitingLabStep


def status(lab: Lab) -> str:
    return str(lab.client.describe_flow("flow").status)


def branches(lab: Lab, *endings: Any) -> Any:
    """A run that fans out to one Step per ending; returns their keys in order."""
    ends = [LabStep(f"Branch{number}", lambda c, i, end=end: end) for number, end in enumerate(endings)]
    fan = LabStep("Fan", lambda context, input: go_to_many(*(StepMovement.of(each, "") for each in ends)))
    lab.define(fan, *ends)
    lab.start()
    lab.run(lab.bell.take()[0])
    keys = lab.bell.take()
    assert [key.step_type for key in keys] == [each.name for each in ends], "a fan-out goes through the queue"
    return keys


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_run_completes_when_all_branches_have_ended_and_keeps_all_outputs(lab: Lab, order: tuple[int, int]) -> None:
    keys = branches(lab, graceful_complete("a"), graceful_complete("b"))
    lab.run(keys[order[0]])
    assert status(lab) == "RUNNING"
    lab.run(keys[order[1]])
    outcome = lab.client.wait_for_flow("flow", 0)
    assert outcome.status == "COMPLETED"
    assert [each.decode(str) for each in outcome.completions] == [("a", "b")[number] for number in order]
    with pytest.raises(DexflowsError):
        outcome.single_output(str)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_dead_end_is_an_ended_branch_for_a_graceful_completion_in_either_order(
    lab: Lab, order: tuple[int, int]
) -> None:
    keys = branches(lab, graceful_complete("a"), dead_end())
    for number in order:
        assert status(lab) == "RUNNING"
        lab.run(keys[number])
    assert status(lab) == "COMPLETED"
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "a"


def test_a_dead_end_that_meets_the_commit_of_a_graceful_completion_closes_the_run(lab: Lab) -> None:
    """Staged: it has found no completed branch and then waits for the settlement that completes one."""
    graceful, dead = branches(lab, graceful_complete("a"), dead_end())
    with transaction.atomic():
        lab.run(graceful)
        second = in_thread(lab.run, dead)
        wait_until_blocked("dexflows_settle")
    assert result(second)
    assert status(lab) == "COMPLETED"


def test_dead_ends_alone_leave_the_run_running(lab: Lab) -> None:
    for key in branches(lab, dead_end(), dead_end()):
        lab.run(key)
    assert status(lab) == "RUNNING"
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


@pytest.mark.parametrize(
    ("end", "state", "outputs", "error"),
    [
        (force_complete("now"), "COMPLETED", ["now"], None),
        (force_fail("because"), "FAILED", [], "because"),
    ],
)
def test_forcing_closes_at_once_and_discards_other_steps(
    lab: Lab, end: Any, state: str, outputs: list[str], error: str | None
) -> None:
    other, forcing = branches(lab, graceful_complete("late"), end)
    lab.run(forcing)
    outcome = lab.client.wait_for_flow("flow", 0)
    assert (outcome.status, outcome.error_message) == (state, error)
    assert [each.decode(str) for each in outcome.completions] == outputs
    assert step(other.run_id, "Branch0-1") == "CANCELED"
    assert not lab.run(other)
    assert lab.bell.names() == []


def test_the_result_of_a_running_step_is_dropped_when_another_closes_the_run(lab: Lab) -> None:
    standing = Pause()

    def slow(context: Any, input: str) -> Any:
        standing.here()
        LabFlow.note.set(context, "late")
        return graceful_complete("late")

    slow_step, force = LabStep("Slow", slow), LabStep("Force", lambda context, input: force_complete("now"))
    fan = LabStep("Fan", lambda c, i: go_to_many(StepMovement.of(slow_step, ""), StepMovement.of(force, "")))
    lab.define(fan, slow_step, force)
    run = lab.start()
    lab.run(lab.bell.take()[0])
    running = in_thread(lab.run, lab.key(run, "Slow-1"))
    with standing.reached():
        lab.run(lab.key(run, "Force-1"))
    result(running)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "now"
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_the_last_two_branches_that_settle_at_the_same_time_complete_the_run_exactly_once(lab: Lab) -> None:
    for _ in range(5):
        both = threading.Barrier(2)

        def end(context: Any, input: str, both: threading.Barrier = both) -> Any:
            both.wait(DEADLINE)
            return graceful_complete(input)

        with registry.isolated():
            leaf = LabStep("Leaf", end)
            fan = LabStep("Fan", lambda c, i, leaf=leaf: go_to_many(*(StepMovement.of(leaf, x) for x in "ab")))
            lab.define(fan, leaf)
            flow_id = f"flow-{_}"
            run = lab.start(flow_id)
            lab.run(lab.bell.take()[0])
            for running in [in_thread(lab.run, key) for key in lab.bell.take()]:
                assert result(running)
            outcome = lab.client.wait_for_flow(flow_id, 0)
            assert outcome.status == "COMPLETED"
            assert sorted(each.decode(str) for each in outcome.completions) == ["a", "b"]
            completed = "SELECT count(*) FROM dexflows_event WHERE run_id = %s AND kind = 'FLOW_COMPLETED'"
            assert value(completed, run) == 1


def test_a_branch_that_settles_while_the_other_is_committing_sees_that_one_ended(lab: Lab) -> None:
    """Staged: the first settlement is committed only after the second has begun to wait for it."""
    keys = branches(lab, graceful_complete("a"), graceful_complete("b"))
    with transaction.atomic():
        lab.run(keys[0])
        second = in_thread(lab.run, keys[1])
        wait_until_blocked("dexflows_settle")
    assert result(second)
    assert status(lab) == "COMPLETED"


def test_steps_of_one_type_are_numbered_without_gaps_however_many_create_them_at_once(lab: Lab) -> None:
    leaf = LabStep("Leaf")
    fan = LabStep("Fan", lambda context, input: go_to_many(*(StepMovement.of(leaf, "") for _ in range(3))))
    lab.define(fan, leaf, start=False)
    run = lab.start()
    keys = lab.create(*[fan] * 6)
    ready = threading.Barrier(6)

    def work(key: Any) -> None:
        ready.wait(DEADLINE)
        lab.run(key)

    for running in [in_thread(work, key) for key in keys]:
        result(running)
    numbers = rows(
        "SELECT number FROM dexflows_step_execution WHERE run_id = %s AND step_type = 'Leaf' ORDER BY 1", run
    )
    assert [number for (number,) in numbers] == list(range(1, 19))


def canceling(lab: Lab, decide: Any) -> Any:
    """Fan -> [Decider, Sibling], and a Sibling of other parentage; runs the Decider."""
    sibling = LabStep("Sibling", lambda context, input: graceful_complete("survived"))
    decider = LabStep("Decider", lambda context, input: decide(sibling))
    fan = LabStep("Fan", lambda c, i: go_to_many(StepMovement.of(decider, ""), StepMovement.of(sibling, "")))
    lab.define(fan, decider, sibling)
    run = lab.start()
    lab.create(sibling)
    lab.run(lab.key(run, "Fan-1"))
    lab.run(lab.key(run, "Decider-1"))
    return run


def test_a_decision_cancels_every_current_execution_of_a_type_but_not_its_own_next_steps(lab: Lab) -> None:
    run = canceling(
        lab,
        lambda sibling: go_to_many(StepMovement.of(sibling, ""), StepMovement.of(sibling, "")).with_canceling_steps(
            sibling
        ),
    )
    assert [steps(run)[f"Sibling-{number}"] for number in (1, 2, 3, 4)] == ["CANCELED", "CANCELED", "QUEUED", "QUEUED"]
    assert not lab.run(lab.key(run, "Sibling-1"))


def test_canceling_siblings_hits_only_executions_of_the_same_parent(lab: Lab) -> None:
    run = canceling(lab, lambda sibling: dead_end().with_canceling_sibling_steps(sibling))
    assert [steps(run)[f"Sibling-{number}"] for number in (1, 2)] == ["QUEUED", "CANCELED"]


def test_a_step_without_a_parent_cancels_no_step_that_has_one(lab: Lab) -> None:
    leaf = LabStep("Leaf")
    fan = LabStep("Fan", lambda context, input: go_to_many(StepMovement.of(leaf, ""), StepMovement.of(leaf, "")))
    orphan = LabStep("Orphan", lambda context, input: dead_end().with_canceling_sibling_steps(leaf))
    lab.define(fan, leaf, orphan)
    run = lab.start()
    lab.run(lab.bell.take()[0])
    lab.run(lab.create(orphan)[-1])
    lab.run(lab.key(run, "Orphan-1"))
    assert steps(run) == {"Fan-1": "COMPLETED", "Leaf-1": "QUEUED", "Leaf-2": "QUEUED", "Orphan-1": "COMPLETED"}


def test_a_running_step_that_is_canceled_has_its_result_dropped(lab: Lab) -> None:
    standing = Pause()
    slow = LabStep("Slow", lambda c, i: (standing.here(), LabFlow.note.set(c, "late"), graceful_complete("late"))[2])
    lab.define(slow, start=False)
    run = lab.start()
    running = in_thread(lab.run, lab.create(slow)[0])
    with standing.reached():
        lab.flow.on_call = lambda context: lab.cancel(slow)
        lab.client.invoke_rpc(lab.flow.call, "flow")
    result(running)
    assert (steps(run), status(lab)) == ({"Slow-1": "CANCELED"}, "RUNNING")
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def chain(lab: Lab, length: int, flow_id: str = "flow") -> Any:
    link = LabStep("Link", lambda c, i: go_to(link, str(int(i) + 1)) if int(i) < length else graceful_complete(i))
    lab.define(link)
    run = lab.start(flow_id, "1")
    return run, lab.bell.take()[0]


def test_a_chain_runs_on_in_place_without_a_ring(lab: Lab) -> None:
    run, key = chain(lab, 10)
    assert lab.run(key)
    assert lab.bell.names() == []
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "10"
    assert set(steps(run).values()) == {"COMPLETED"}
    assert step(run, "Link-2", "from_step") == "Link-1"


def test_running_on_in_place_is_bounded_in_steps(lab: Lab, settings: Any) -> None:
    settings.DEXFLOWS = {"RUN_ON_STEPS": 3}
    run, key = chain(lab, 10)
    lab.run(key)
    assert lab.bell.names() == ["Link-4"]
    assert steps(run)["Link-4"] == "QUEUED"
    lab.run_all()
    assert status(lab) == "COMPLETED"


def test_running_on_in_place_is_bounded_in_time_and_ends_when_the_worker_drains(lab: Lab, settings: Any) -> None:
    settings.DEXFLOWS = {"RUN_ON_SECONDS": 1e-9}
    _, key = chain(lab, 10)
    lab.run(key)
    assert lab.bell.names() == ["Link-2"]
    settings.DEXFLOWS = {}
    worker = InlineWorker()
    lab.flow.steps[0].handler = lambda c, i: (setattr(worker, "draining", True), go_to(lab.flow.steps[0], i))[1]  # type: ignore[attr-defined]
    executor.run(lab.bell.take()[0], worker)
    assert lab.bell.names() == ["Link-3"]


def test_a_next_step_of_another_queue_is_rung_there(lab: Lab) -> None:
    far = LabStep("Far", worker_target="far")
    near = LabStep("Near", lambda context, input: go_to(far, ""))
    lab.define(near, far)
    run = lab.start()
    lab.run(lab.bell.take()[0])
    assert [(key.step_execution_id, key.queue) for key in lab.bell.take()] == [("Far-1", "far")]
    assert step(run, "Far-1") == "QUEUED"


def test_options_of_a_movement_are_stored_with_the_execution_and_replace_the_steps_own(lab: Lab) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        seen.append((LabFlow.m.get(context, "x"), connection.in_atomic_block))
        if context.attempt == 1:
            raise RuntimeError("boom")
        return dead_end()

    own = StepOptions(
        execute_load_attribute_map_instances=(LabFlow.m.load("x"),),
        execute_atomic=True,
        execute_lock_attributes=(LabFlow.c.lock(),),
        execute_retry=RetryPolicy(initial_interval=0, maximum_attempts=2),
        worker_target="special",
    )
    y = LabStep("Y", work)
    lab.define(y, start=False)
    run = lab.start()
    lab.client.set_attribute("flow", LabFlow.m, "x", 7)
    (key,) = lab.create(StepMovement.of(y, "", own))
    assert key.queue == "special"
    lab.run(key)
    (again,) = make_due(run)
    assert again.queue == "special"
    lab.run(again)
    assert seen == [(7, True), (7, True)]
    assert step(run, "Y-1") == "COMPLETED"


def test_wait_for_runs_before_execute_and_its_writes_are_committed_in_between(lab: Lab) -> None:
    seen: list[Any] = []

    def wait(context: Any, input: str) -> None:
        LabFlow.note.set(context, f"waited for {input}")

    def work(context: Any, input: str) -> Any:
        seen.append((LabFlow.note.get(context), context.attempt, input))
        seen.append(result(in_thread(lab.client.get_attribute, "flow", LabFlow.note)))
        return graceful_complete("ok")

    lab.define(WaitingLabStep("Y", work, wait=wait))
    lab.start(input="in")
    lab.run(lab.bell.take()[0])
    assert seen == [("waited for in", 1, "in"), "waited for in"]
    assert status(lab) == "COMPLETED"


def test_an_async_handler_is_run_to_completion(lab: Lab) -> None:
    async def work(context: Any, input: str) -> Any:
        await asyncio.sleep(0)
        LabFlow.note.set(context, input)
        return graceful_complete(input)

    lab.define(AsyncLabStep("Y", work))
    lab.start(input="async")
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "async"
    assert lab.client.get_attribute("flow", LabFlow.note) == "async"


@pytest.mark.parametrize(("ending", "then"), [(graceful_complete("a"), "COMPLETED"), (dead_end(), "RUNNING")])
def test_an_rpc_that_cancels_the_last_branch_ends_the_run_if_another_has_completed(
    lab: Lab, ending: Any, then: str
) -> None:
    first, second = branches(lab, ending, graceful_complete("b"))
    lab.run(first)
    last = registry.definition_of(lab.flow).steps[second.step_type].step
    lab.flow.on_call = lambda context: RPCResult("ok", canceling_steps=(last,))
    lab.client.invoke_rpc(lab.flow.call, "flow")
    assert status(lab) == then
    assert step(second.run_id, "Branch1-1", "state") == "CANCELED"
