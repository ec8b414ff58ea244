"""Steps among Steps: whole sets or nothing, in the order of waiting, without holding up the uninvolved."""

from typing import Any

import pytest

from dexflows import RetryPolicy, StepMovement, dead_end, force_complete, go_to_many
from dexflows.attribute import AttributeLock
from dexflows.engine.keys import StepKey
from dexflows.options import StopFlowOptions
from tests.engine.kit import Lab, Pause, end_lease, holds, in_thread, make_due, result, step, steps, value, waiters
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

A, B, C = LabFlow.a.lock(), LabFlow.b.lock(), LabFlow.c.lock()


def locking(name: str, *locks: AttributeLock, handler: Any = None, **options: Any) -> LabStep:
    return LabStep(name, handler, execute_lock_attributes=locks, **options)


class Holding:
    """A Step that stands still in its handler, in a thread of its own, with its locks held."""

    def __init__(self, lab: Lab, *locks: AttributeLock) -> None:
        self.lab = lab
        self.pause = Pause()
        self.step = locking("Holder", *locks, handler=self._execute)

    def _execute(self, context: Any, input: str) -> Any:
        self.pause.here()
        return dead_end()

    def begin(self) -> None:
        (key,) = self.lab.create(self.step)
        self.running = in_thread(self.lab.run, key)
        self.pause.wait()

    def end(self) -> None:
        self.pause.release()
        assert result(self.running)


def test_a_step_holds_its_whole_set_while_its_handler_runs_and_nothing_afterwards(lab: Lab) -> None:
    holding = Holding(lab, A, LabFlow.m.lock("x/y".replace("/", "%")), A)
    lab.define(holding.step, start=False)
    run = lab.start()
    holding.begin()
    assert holds(run) == {"a": "Holder-1", "m/x%25y": "Holder-1"}
    holding.end()
    assert holds(run) == {}


def test_a_step_whose_lock_is_held_waits_without_an_attempt_and_is_rung_when_the_holder_ends(lab: Lab) -> None:
    holding, second = Holding(lab, A), locking("Second", A)
    lab.define(holding.step, second, start=False)
    run = lab.start()
    holding.begin()
    (key,) = lab.create(second)
    assert not lab.run(key)
    assert (step(run, "Second-1"), step(run, "Second-1", "attempt")) == ("WAITING_FOR_LOCK", 0)
    assert waiters(run) == ["Second-1"]
    holding.end()
    assert lab.bell.names() == ["Second-1"]
    lab.run_all()
    assert (step(run, "Second-1"), waiters(run), holds(run)) == ("COMPLETED", [], {})


def test_a_waiter_holds_none_of_its_set_while_it_waits(lab: Lab) -> None:
    holding, both, other = Holding(lab, A), locking("Both", A, B), locking("Other", B)
    lab.define(holding.step, both, other, start=False)
    run = lab.start()
    holding.begin()
    (key,) = lab.create(both)
    lab.run(key)
    assert set(holds(run)) == {"a"}
    lab.flow.on_call = lambda context: None
    assert lab.client.invoke_rpc(lab.flow.call_on_b, "flow") == "done"
    holding.end()


def test_a_later_waiter_with_a_shared_key_stays_behind_and_a_disjoint_one_overtakes(lab: Lab) -> None:
    """LCK-11: X holds b, Y waits for a and b, Z wants a and stays behind Y, W wants c and runs at once."""
    order: list[str] = []

    def note(context: Any, input: str) -> Any:
        order.append(context.step_execution_id)
        return dead_end()

    x = Holding(lab, B)
    y, z, w = (locking("Y", A, B, handler=note), locking("Z", A, handler=note), locking("W", C, handler=note))
    lab.define(x.step, y, z, w, start=False)
    run = lab.start()
    x.begin()
    for key in lab.create(y, z, z, w):
        lab.run(key)
    assert (order, waiters(run)) == (["W-1"], ["Y-1", "Z-1", "Z-2"])
    lab.run(lab.key(run, "Z-1"))
    assert order == ["W-1"], "a ring out of turn lets nobody overtake"
    x.end()
    assert lab.bell.names() == ["Y-1"], "whoever stands behind Y is not rung before Y has gone"
    lab.run_all()
    assert order == ["W-1", "Y-1", "Z-1", "Z-2"]
    assert waiters(run) == []


def test_an_endless_stream_of_later_steps_does_not_starve_a_waiter_for_two_keys(lab: Lab) -> None:
    x, y, z = Holding(lab, B), locking("Y", A, B), locking("Z", A)
    lab.define(x.step, y, z, start=False)
    run = lab.start()
    x.begin()
    lab.run(lab.create(y)[0])
    stream = [key for _ in range(10) for key in lab.create(z)]
    for key in stream:
        lab.run(key)
    assert waiters(run) == ["Y-1", *[f"Z-{number}" for number in range(1, 11)]]
    x.end()
    first = lab.bell.take()
    assert [key.step_execution_id for key in first] == ["Y-1"]
    assert lab.run(first[0])
    lab.run_all()
    assert set(steps(run).values()) == {"COMPLETED"}


def test_the_order_of_waiting_counts_not_the_order_of_creation_or_of_rings(lab: Lab) -> None:
    x, y = Holding(lab, A), locking("Y", A)
    lab.define(x.step, y, start=False)
    run = lab.start()
    x.begin()
    keys = lab.create(y, y, y)
    for key in reversed(keys):
        lab.run(key)
        lab.run(key)
    assert waiters(run) == ["Y-3", "Y-2", "Y-1"]
    x.end()
    assert lab.bell.names() == ["Y-3"]
    lab.run_all()
    assert set(steps(run).values()) == {"COMPLETED"}


@pytest.mark.parametrize(
    ("held", "wanted", "waits"),
    [
        (LabFlow.m.lock_all(), LabFlow.m.lock("x"), True),
        (LabFlow.m.lock("x"), LabFlow.m.lock_all(), True),
        (LabFlow.m.lock_all(), LabFlow.m.lock_all(), True),
        (LabFlow.m.lock("x"), LabFlow.m.lock("x"), True),
        (LabFlow.m.lock("x"), LabFlow.m.lock("y"), False),
        (LabFlow.m.lock_all(), LabFlow.c.lock(), False),
        (LabFlow.m.lock("c"), LabFlow.c.lock(), False),
    ],
)
def test_a_whole_map_and_its_instances_exclude_each_other_and_instances_do_not(
    lab: Lab, held: AttributeLock, wanted: AttributeLock, waits: bool
) -> None:
    holding, second = Holding(lab, held), locking("Second", wanted)
    lab.define(holding.step, second, start=False)
    run = lab.start()
    holding.begin()
    (key,) = lab.create(second)
    assert lab.run(key) is not waits
    holding.end()
    assert lab.bell.names() == (["Second-1"] if waits else [])
    lab.run_all()
    assert step(run, "Second-1") == "COMPLETED"


def test_a_waiter_for_the_whole_map_keeps_later_instance_locks_behind_it(lab: Lab) -> None:
    x, whole, one = (
        Holding(lab, LabFlow.m.lock("x")),
        locking("Whole", LabFlow.m.lock_all()),
        locking("One", LabFlow.m.lock("y")),
    )
    lab.define(x.step, whole, one, start=False)
    run = lab.start()
    x.begin()
    for key in lab.create(whole, one, one):
        lab.run(key)
    assert waiters(run) == ["Whole-1", "One-1", "One-2"]
    x.end()
    lab.run(lab.bell.take()[0])
    assert sorted(lab.bell.names()) == ["One-1"], "both want y, so only the first is rung"
    lab.run_all()
    assert set(steps(run).values()) == {"COMPLETED"}


def test_ending_a_whole_map_hold_rings_every_instance_waiter_that_may_go(lab: Lab) -> None:
    whole = Holding(lab, LabFlow.m.lock_all())
    x, y = locking("X", LabFlow.m.lock("x")), locking("Y", LabFlow.m.lock("y"))
    lab.define(whole.step, x, y, start=False)
    run = lab.start()
    whole.begin()
    for key in lab.create(x, y, x):
        lab.run(key)
    whole.end()
    assert lab.bell.names() == ["X-1", "Y-1"]
    lab.run_all()
    assert waiters(run) == []


def test_canceling_a_waiter_removes_its_place_at_once_and_lets_the_next_go(lab: Lab) -> None:
    x, y, z = Holding(lab, B), locking("Y", A, B), locking("Z", A)
    lab.define(x.step, y, z, start=False)
    run = lab.start()
    x.begin()
    for key in lab.create(y, z):
        lab.run(key)
    lab.bell.take()
    lab.flow.on_call = lambda context: lab.cancel(y)
    lab.client.invoke_rpc(lab.flow.call, "flow")
    assert (waiters(run), step(run, "Y-1")) == (["Z-1"], "CANCELED")
    assert lab.bell.names() == ["Z-1"]
    lab.run_all()
    assert step(run, "Z-1") == "COMPLETED"
    assert not lab.run(lab.key(run, "Y-1"))
    x.end()


def test_canceling_a_holder_frees_its_lock_at_once_and_drops_its_result(lab: Lab) -> None:
    x, y = Holding(lab, A), locking("Y", A)
    lab.define(x.step, y, start=False)
    run = lab.start()
    x.begin()
    lab.run(lab.create(y)[0])
    lab.flow.on_call = lambda context: lab.cancel(x.step)
    lab.client.invoke_rpc(lab.flow.call, "flow")
    assert holds(run) == {}
    assert lab.bell.names() == ["Y-1"]
    lab.run_all()
    assert step(run, "Y-1") == "COMPLETED"
    x.end()
    assert step(run, "Holder-1") == "CANCELED"


def test_a_retry_queues_again_at_the_tail_and_holds_nothing_in_backoff(lab: Lab) -> None:
    order: list[str] = []
    failing = Pause()

    def once(context: Any, input: str) -> Any:
        order.append(f"{context.step_execution_id} {context.attempt}")
        if context.step_execution_id == "Y-1" and context.attempt == 1:
            failing.here()
            raise RuntimeError("once")
        return dead_end()

    y = locking("Y", A, handler=once, execute_retry=RetryPolicy(initial_interval=0))
    lab.define(y, start=False)
    run = lab.start()
    first, second = lab.create(y, y)
    running = in_thread(lab.run, first)
    with failing.reached():
        lab.run(second)
        assert waiters(run) == ["Y-2"]
    result(running)
    assert (step(run, "Y-1"), holds(run), lab.bell.names()) == ("BACKOFF", {}, ["Y-2"])
    holder = lab.bell.take()[0]
    third = lab.create(y)[0]
    assert make_due(run), "the ended backoff and the unheard rings"
    lab.run(holder)
    lab.run(third)
    lab.run(first)
    assert order == ["Y-1 1", "Y-2 1", "Y-3 1", "Y-1 2"]


def test_the_rescue_of_a_lost_attempt_frees_its_lock_and_its_late_result_frees_nothing(lab: Lab) -> None:
    """LCK-10: a holder that was superseded cannot release what the next attempt or the next Step holds."""
    x, y = Holding(lab, A), Holding(lab, A)
    y.step.name = "Next"
    lab.define(x.step, y.step, start=False)
    run = lab.start()
    x.begin()
    (key,) = lab.create(y.step)
    lab.run(key)
    end_lease(run, "Holder-1")
    lab.rescue(run, "Holder-1")
    assert (step(run, "Holder-1"), holds(run)) == ("BACKOFF", {})
    assert lab.bell.names() == ["Next-1"]
    y.running = in_thread(lab.run, lab.bell.take()[0])
    y.pause.wait()
    x.end()
    assert holds(run) == {"a": "Next-1"}
    assert step(run, "Holder-1") == "BACKOFF"
    y.end()
    assert holds(run) == {}


@pytest.mark.parametrize("how", ["stop", "force_complete"])
def test_closing_the_run_ends_all_holds_and_waits(lab: Lab, how: str) -> None:
    x, y = Holding(lab, A), locking("Y", A)
    closer = LabStep("Closer", lambda context, input: force_complete("over"))
    lab.define(x.step, y, closer, start=False)
    run = lab.start()
    x.begin()
    lab.run(lab.create(y)[0])
    if how == "stop":
        lab.client.stop_flow("flow", StopFlowOptions())
    else:
        lab.run(lab.create(closer)[0])
    assert (holds(run), waiters(run)) == ({}, [])
    assert {steps(run)["Holder-1"], steps(run)["Y-1"]} == {"CANCELED"}
    x.end()
    assert not lab.run(lab.key(run, "Y-1"))


def test_locks_are_not_held_between_wait_for_and_execute(lab: Lab) -> None:
    seen: list[dict[str, str]] = []
    run: Any = None

    def look(context: Any, input: str) -> Any:
        seen.append(holds(run))
        return dead_end()

    both = WaitingLabStep("Both", look, wait=look, wait_for_lock_attributes=(A,), execute_lock_attributes=(B,))
    lab.define(both, start=False)
    run = lab.start()
    (key,) = lab.create(both)
    lab.run(key)
    assert seen == [{"a": "Both-1"}, {"b": "Both-1"}]
    assert (step(run, "Both-1"), holds(run)) == ("COMPLETED", {})


def test_options_of_a_movement_replace_the_locks_of_the_step(lab: Lab) -> None:
    x, y = Holding(lab, A), locking("Y", A)
    lab.define(x.step, y, start=False)
    run = lab.start()
    x.begin()
    free, bound = lab.create(StepMovement.of(y, "", locking("", B).options), StepMovement.of(y, ""))
    assert lab.run(free)
    assert not lab.run(bound)
    assert steps(run)["Y-1"] == "COMPLETED"
    x.end()


def test_the_next_step_of_a_decision_takes_its_lock_although_its_parent_held_it(lab: Lab) -> None:
    second = locking("Second", A)
    first = locking("First", A, handler=lambda context, input: go_to_many(StepMovement.of(second, "")))
    lab.define(first, second)
    run = lab.start()
    lab.run_all()
    assert steps(run) == {"First-1": "COMPLETED", "Second-1": "COMPLETED"}
    assert holds(run) == {}


def test_a_parked_holder_to_be_keeps_no_lock(lab: Lab) -> None:
    lab.define(locking("Y", A), start=False)
    run = lab.start()
    (key,) = lab.create(lab.flow.steps[0])
    unknown = StepKey(run, "NoSuchFlow", key.step_type, key.number, key.queue)
    assert not lab.run(unknown)
    assert holds(run) == {}


def test_a_release_with_another_token_frees_nothing(lab: Lab) -> None:
    """LCK-10."""
    holding = Holding(lab, A)
    lab.define(holding.step, start=False)
    run = lab.start()
    holding.begin()
    assert value("SELECT dexflows_release_locks(%s, 'Holder', 1, gen_random_uuid())::text", run) == "[]"
    assert holds(run) == {"a": "Holder-1"}
    holding.end()
