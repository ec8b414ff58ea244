"""Steps with `execute_atomic`: the application's own rows commit with the Step, or not at all."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from dexflows import RetryPolicy, StepMovement, go_to, go_to_many, graceful_complete
from dexflows.errors import RpcLockConflictError
from tests.engine.kit import (
    DEADLINE,
    Lab,
    Pause,
    end_lease,
    in_thread,
    make_due,
    result,
    rows,
    step,
    steps,
    value,
    wait_until,
)
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

AT_ONCE = RetryPolicy(initial_interval=0)


def atomic(name: str, handler: Any, **options: Any) -> LabStep:
    return LabStep(name, handler, execute_atomic=True, execute_retry=AT_ONCE, **options)


def test_a_row_and_an_attribute_appear_in_one_commit(lab: Lab) -> None:
    standing = Pause()

    def work(context: Any, input: str) -> Any:
        Group.objects.create(name="paid")
        LabFlow.note.set(context, "paid")
        standing.here()
        return graceful_complete("ok")

    lab.define(atomic("Pay", work))
    lab.start()
    seen: set[tuple[bool, bool]] = set()
    done = threading.Event()

    def observe() -> None:
        while not done.is_set():
            ((group, note, state),) = rows(
                "SELECT EXISTS (SELECT FROM auth_group), EXISTS (SELECT FROM dexflows_attribute), "
                "(SELECT status FROM dexflows_run) = 'COMPLETED'"
            )
            assert group is note is state
            seen.add((group, note))

    observer = in_thread(observe)
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        wait_until(lambda: (False, False) in seen, "the observer saw nothing")
    result(running)
    wait_until(lambda: (True, True) in seen, "the observer did not see the commit")
    done.set()
    result(observer)
    assert seen == {(False, False), (True, True)}


def test_a_handler_that_raises_leaves_no_row_and_is_tried_again(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        Group.objects.create(name="paid")
        LabFlow.note.set(context, "paid")
        if context.attempt == 1:
            raise RuntimeError("boom")
        return graceful_complete("ok")

    lab.define(atomic("Pay", work))
    run = lab.start()
    lab.run_all()
    assert (step(run, "Pay-1"), Group.objects.count()) == ("BACKOFF", 0)
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    lab.run(make_due(run)[0])
    assert (step(run, "Pay-1"), step(run, "Pay-1", "attempt"), Group.objects.count()) == ("COMPLETED", 2, 1)


def test_a_superseded_attempt_leaves_no_row(lab: Lab) -> None:
    standing = Pause()

    def work(context: Any, input: str) -> Any:
        Group.objects.create(name=f"paid in attempt {context.attempt}")
        if context.attempt == 1:
            standing.here()
        return graceful_complete("ok")

    lab.define(atomic("Pay", work))
    run = lab.start()
    first = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        end_lease(run, "Pay-1")
        assert lab.rescue(run, "Pay-1")
        lab.run(make_due(run)[0])
        assert step(run, "Pay-1") == "COMPLETED"
    result(first)
    assert list(Group.objects.values_list("name", flat=True)) == ["paid in attempt 2"]
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "ok"


def test_a_canceled_attempt_leaves_no_row(lab: Lab) -> None:
    standing = Pause()

    def work(context: Any, input: str) -> Any:
        Group.objects.create(name="paid")
        standing.here()
        return graceful_complete("ok")

    pay = atomic("Pay", work)
    lab.define(pay)
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        lab.flow.on_call = lambda context: lab.cancel(pay)
        lab.client.invoke_rpc(lab.flow.call, "flow")
    result(running)
    assert (steps(run), Group.objects.count()) == ({"Pay-1": "CANCELED"}, 0)


def test_a_deferred_constraint_that_fails_at_the_commit_counts_as_a_failed_attempt(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        LabFlow.note.set(context, "paid")
        group = Group.objects.create(name="paid")
        if context.attempt == 1:
            Group.permissions.through.objects.create(group_id=group.pk, permission_id=999_999_999)
        return go_to_many(StepMovement.of(other, ""), StepMovement.of(other, ""))

    other = LabStep("Other")
    lab.define(atomic("Pay", work), other)
    run = lab.start()
    lab.run_all()
    assert (steps(run), Group.objects.count()) == ({"Pay-1": "BACKOFF"}, 0)
    assert step(run, "Pay-1", "failure ->> 'error_type'") == "IntegrityError"
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    assert lab.bell.names() == [], "nothing is rung for Steps that were rolled back"
    lab.run(make_due(run)[0])
    assert steps(run) == {"Pay-1": "COMPLETED", "Other-1": "QUEUED", "Other-2": "QUEUED"}
    assert Group.objects.count() == 1


def test_the_locks_of_an_attempt_that_failed_at_its_commit_are_free(lab: Lab) -> None:
    """LCK-03 with an IntegrityError on commit."""

    def work(context: Any, input: str) -> Any:
        group = Group.objects.create(name="paid")
        Group.permissions.through.objects.create(group_id=group.pk, permission_id=999_999_999)
        return graceful_complete("ok")

    pay = atomic("Pay", work, execute_lock_attributes=(LabFlow.c.lock(),))
    lab.define(pay)
    lab.start()
    lab.run_all()
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


def test_a_deadlock_restarts_the_handler_within_the_attempt(lab: Lab) -> None:
    Group.objects.create(name="one")
    Group.objects.create(name="two")
    both = threading.Barrier(2)
    calls: list[str] = []

    def work(context: Any, input: str) -> Any:
        first, second = ("one", "two") if context.flow_id == "one" else ("two", "one")
        calls.append(first)
        Group.objects.filter(name=first).select_for_update().get()
        if calls.count(first) == 1:
            both.wait(DEADLINE)
        Group.objects.filter(name=second).select_for_update().get()
        LabFlow.c.set(context, calls.count(first))
        return graceful_complete("ok")

    lab.define(atomic("Swap", work))
    runs = [lab.start("one"), lab.start("two")]
    for each in [in_thread(lab.run, key) for key in lab.bell.take()]:
        assert result(each)
    assert len(calls) == 3
    assert [(step(run, "Swap-1"), step(run, "Swap-1", "attempt")) for run in runs] == [("COMPLETED", 1)] * 2


@pytest.mark.parametrize("through_orm", [False, True])
def test_a_handler_that_swallows_a_database_error_fails_instead_of_losing_its_rows(lab: Lab, through_orm: bool) -> None:
    def work(context: Any, input: str) -> Any:
        Group.objects.create(name="one")
        try:
            if through_orm:
                Group.objects.create(name="one")
            else:
                rows("INSERT INTO auth_group (name) VALUES ('one')")
        except IntegrityError:
            pass
        return graceful_complete("ok")

    lab.define(atomic("Pay", work))
    run = lab.start()
    lab.run_all()
    assert (step(run, "Pay-1"), Group.objects.count()) == ("BACKOFF", 0)


def test_only_execute_is_atomic_and_the_next_step_may_run_on_in_place(lab: Lab) -> None:
    open_during: list[bool] = []

    def look(context: Any, input: str) -> Any:
        open_during.append(connection.in_atomic_block)
        return go_to(last, "") if context.step_execution_id == "First-1" else graceful_complete("ok")

    first = WaitingLabStep("First", look, wait=look, execute_atomic=True)
    last = LabStep("Last", look)
    lab.define(first, last)
    run = lab.start()
    lab.run(lab.bell.take()[0])
    assert open_during == [False, True, False]
    assert steps(run) == {"First-1": "COMPLETED", "Last-1": "COMPLETED"}


def test_start_and_rpc_inside_an_atomic_step_are_part_of_it(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        if input == "child":
            return graceful_complete("child")
        lab.client.start_flow(lab.flow, "child", "child")
        lab.client.invoke_rpc(lab.flow.put, "flow", "from the Step")
        if context.attempt == 1:
            raise RuntimeError("boom")
        return graceful_complete("ok")

    lab.define(atomic("Parent", work))
    run = lab.start()
    lab.run_all()
    assert value("SELECT count(*) FROM dexflows_run") == 1
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    assert lab.bell.names() == []
    lab.run(make_due(run)[0])
    assert lab.client.get_attribute("flow", LabFlow.note) == "from the Step"
    assert [key.run_id != run for key in lab.bell.take()] == [True]


def test_no_transaction_is_open_while_a_normal_handler_runs_not_even_with_locks_held(lab: Lab) -> None:
    """LCK-12: idle sessions hold no snapshot, so vacuum and pools are not held up."""
    standing = Pause()

    def work(context: Any, input: str) -> Any:
        rows("SELECT 1")
        pids.append(value("SELECT pg_backend_pid()"))
        standing.here()
        return graceful_complete("ok")

    pids: list[int] = []
    lab.define(LabStep("Slow", work, execute_lock_attributes=(LabFlow.c.lock(),)))
    lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        found = rows("SELECT state, xact_start, backend_xmin FROM pg_stat_activity WHERE pid = %s", pids[0])
        assert found == [("idle", None, None)]
        assert value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", pids[0]) == 0
        with pytest.raises(RpcLockConflictError):
            lab.client.invoke_rpc(lab.flow.bump, "flow")
    result(running)


def test_a_transaction_that_a_normal_handler_leaves_open_does_not_swallow_its_result(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        if input == "begin":
            rows("BEGIN")
        else:
            transaction.set_autocommit(False)
        if input == "autocommit":
            return graceful_complete("ok")
        Group.objects.create(name="forgotten")
        return graceful_complete("ok")

    lab.define(LabStep("Careless", work))
    lab.start("one", "begin")
    lab.start("two", "autocommit")
    lab.start("three", "autocommit and a row")
    lab.run_all()
    assert not Group.objects.exists()
    statuses = result(in_thread(rows, "SELECT status FROM dexflows_run"))
    assert statuses == [("COMPLETED",)] * 3


@pytest.mark.parametrize("ending", ["stop", "cancel"])
def test_a_handler_that_ends_its_own_attempt_fails_and_leaves_no_row(lab: Lab, ending: str) -> None:
    def work(context: Any, input: str) -> Any:
        Group.objects.create(name="paid")
        if ending == "stop":
            lab.client.stop_flow("flow")
        else:
            lab.client.invoke_rpc(lab.flow.call, "flow")
        return graceful_complete("done")

    first = atomic("A", work)
    lab.define(first)
    lab.flow.on_call = lambda context: lab.cancel(first)
    run_id = lab.start()
    lab.run_all()

    assert not Group.objects.exists()
    assert step(run_id, "A-1") == "FAILED"
    assert value("SELECT error_message FROM dexflows_run WHERE run_id = %s", run_id).startswith("AttemptNotCurrent: ")
