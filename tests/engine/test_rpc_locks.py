"""RPCs among Steps and each other: at once or not at all; who waits for an RPC is rung when it has ended."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from dexflows import RPCInvokeOptions, dead_end
from dexflows.engine import transitions
from dexflows.engine.keys import plan_of
from dexflows.errors import RpcLockConflictError, RpcTimeoutError, WorkerInvocationError
from dexflows.registry import registry
from tests.engine.kit import (
    DEADLINE,
    Lab,
    Pause,
    holds,
    in_thread,
    result,
    rows,
    step,
    value,
    wait_until_blocked,
    waiters,
)
from tests.engine.test_step_locks import Holding, locking
from tests.flows_lab import LabFlow

A, B, C = LabFlow.a.lock(), LabFlow.b.lock(), LabFlow.c.lock()


class Calling:
    """An RPC that stands still in its handler, in a thread of its own, with its locks held."""

    def __init__(self, lab: Lab, method: Any, *, error: Exception | None = None, **options: Any) -> None:
        self.pause = Pause()

        def stand_still(context: Any) -> None:
            self.pause.here()
            if error is not None:
                raise error

        lab.flow.on_call = stand_still
        self.answer = in_thread(lambda: lab.client.invoke_rpc(method, "flow", **options))
        self.pause.wait()
        lab.flow.on_call = lambda context: None

    def end(self) -> Any:
        self.pause.release()
        return result(self.answer)


def refused(lab: Lab, method: Any, **options: Any) -> tuple[str, ...]:
    """The locks that a conflict names."""
    with pytest.raises(RpcLockConflictError) as conflict:
        lab.client.invoke_rpc(method, "flow", **options)
    return conflict.value.locks


def test_an_rpc_on_a_key_that_a_step_holds_is_refused_at_once_and_its_handler_does_not_run(lab: Lab) -> None:
    called = threading.Event()
    holding = Holding(lab, C)
    lab.define(holding.step, start=False)
    lab.start()
    holding.begin()
    lab.flow.on_call = lambda context: called.set()
    assert refused(lab, lab.flow.call_on_c) == ("c",)
    assert refused(lab, lab.flow.bump) == ("c",)
    assert not called.is_set()
    holding.end()
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


def test_an_rpc_that_finds_one_of_two_keys_busy_leaves_the_other_free(lab: Lab) -> None:
    """LCK-08: the refused call keeps nothing, whether a Step or an RPC is in its way."""
    holding = Holding(lab, A)
    lab.define(holding.step, start=False)
    lab.start()
    holding.begin()
    assert refused(lab, lab.flow.call_on_a_and_b) == ("a",)
    lab.flow.on_call = lambda context: None
    assert lab.client.invoke_rpc(lab.flow.call_on_b, "flow") == "done"
    holding.end()
    calling = Calling(lab, lab.flow.call_on_b)
    assert refused(lab, lab.flow.call_on_a_and_b) == ("b",)
    assert lab.client.invoke_rpc(lab.flow.call_on_a, "flow") == "done"
    calling.end()
    assert lab.client.invoke_rpc(lab.flow.call_on_a_and_b, "flow") == "done"
    assert value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == 0


def test_a_refused_rpc_names_every_busy_lock(lab: Lab) -> None:
    holding = Holding(lab, A, B)
    lab.define(holding.step, start=False)
    lab.start()
    holding.begin()
    assert sorted(refused(lab, lab.flow.call_on_a_and_b)) == ["a", "b"]
    holding.end()


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [("x", "x", True), ("x", "y", False), ("x", "*", True), ("*", "x", True), ("*", "*", True)],
)
def test_rpcs_on_a_map_exclude_each_other_by_instance_and_by_whole_map(
    lab: Lab, first: str, second: str, conflict: bool
) -> None:
    lab.define()
    lab.start()

    def of(instance: str) -> tuple[Any, dict[str, Any]]:
        if instance == "*":
            return lab.flow.call_on_all_of_m, {}
        return lab.flow.call, {"options": RPCInvokeOptions(lock_attribute_map_instances=(LabFlow.m.lock(instance),))}

    method, options = of(first)
    calling = Calling(lab, method, **options)
    method, options = of(second)
    if conflict:
        assert refused(lab, method, **options)
    else:
        assert lab.client.invoke_rpc(method, "flow", **options) == "done"
    calling.end()
    assert lab.client.invoke_rpc(method, "flow", **options) == "done"


def test_an_rpc_on_an_instance_is_refused_while_a_step_holds_the_whole_map_and_the_other_way_round(lab: Lab) -> None:
    whole, one = Holding(lab, LabFlow.m.lock_all()), Holding(lab, LabFlow.m.lock("x"))
    one.step.name = "One"
    lab.define(whole.step, one.step, start=False)
    lab.start()
    on_x = RPCInvokeOptions(lock_attribute_map_instances=(LabFlow.m.lock("x"),))
    whole.begin()
    assert refused(lab, lab.flow.call, options=on_x) == ("m/*",)
    whole.end()
    one.begin()
    assert refused(lab, lab.flow.call_on_all_of_m) == ("m/x",)
    assert refused(lab, lab.flow.call, options=on_x) == ("m/x",)
    one.end()


def test_an_rpc_may_take_a_free_lock_though_steps_are_queued_for_it(lab: Lab) -> None:
    x, y = Holding(lab, B), locking("Y", A, B)
    lab.define(x.step, y, start=False)
    run = lab.start()
    x.begin()
    lab.run(lab.create(y)[0])
    assert waiters(run) == ["Y-1"]
    lab.flow.on_call = lambda context: None
    assert lab.client.invoke_rpc(lab.flow.call_on_a, "flow") == "done"
    x.end()


@pytest.mark.parametrize("error", [None, RuntimeError("boom")])
def test_a_step_that_waits_for_the_lock_of_an_rpc_is_rung_when_the_rpc_ends(lab: Lab, error: Exception | None) -> None:
    y = locking("Y", C)
    lab.define(y, start=False)
    run = lab.start()
    (key,) = lab.create(y)
    calling = Calling(lab, lab.flow.call_on_c, error=error)
    assert not lab.run(key)
    assert (step(run, "Y-1"), lab.bell.names()) == ("WAITING_FOR_LOCK", [])
    if error is None:
        calling.end()
    else:
        with pytest.raises(WorkerInvocationError):
            calling.end()
    assert lab.bell.names() == ["Y-1"]
    lab.run_all()
    assert (step(run, "Y-1"), waiters(run)) == ("COMPLETED", [])


def test_a_step_that_waits_for_the_lock_of_an_rpc_that_hangs_is_rung_at_the_timeout_and_finds_the_lock_free(
    lab: Lab,
) -> None:
    y = locking("Y", C)
    lab.define(y, start=False)
    run = lab.start()
    (key,) = lab.create(y)
    calling = Calling(lab, lab.flow.call_briefly_on_c)
    assert not lab.run(key)
    with pytest.raises(RpcTimeoutError):
        result(calling.answer)
    assert lab.bell.names() == ["Y-1"]
    lab.run_all()
    assert step(run, "Y-1") == "COMPLETED"
    calling.pause.release()


def test_a_step_that_met_the_passing_lock_of_a_refused_rpc_is_rung(lab: Lab) -> None:
    """The refused RPC wants a and b; b is busy, and for a moment it has a, just when a Step looks."""
    holding, y = Holding(lab, B), locking("Y", A)
    lab.define(holding.step, y, start=False)
    run = lab.start()
    holding.begin()
    (key,) = lab.create(y)
    with transaction.atomic():
        # A caller's own transaction keeps what the refused call had taken until the savepoint is undone, as a slow
        # network would; here the Step looks before the call is made, and stands in the queue when it is refused.
        rows("SELECT pg_advisory_xact_lock(dexflows_advisory(%s, 'a'))", run)
        assert not result(in_thread(lab.run, key))
    assert (waiters(run), lab.bell.names()) == (["Y-1"], [])
    assert refused(lab, lab.flow.call_on_a_and_b) == ("b",)
    assert lab.bell.names() == ["Y-1"]
    holding.end()
    lab.run_all()
    assert step(run, "Y-1") == "COMPLETED"


def test_the_wake_up_is_not_lost_when_the_rpc_ends_between_the_two_tries_of_the_waiter(lab: Lab) -> None:
    y = locking("Y", C)
    lab.define(y, start=False)
    run = lab.start()
    (key,) = lab.create(y)
    definition = registry.definition_of(lab.flow)
    plan = plan_of(definition, definition.steps["Y"]).json
    calling = Calling(lab, lab.flow.call_on_c)
    assert transitions.claim(key, "inline", plan).outcome == "rpc"
    calling.end()
    assert lab.bell.names() == ["Y-1"], "the RPC looked after its commit and saw the waiter"
    assert transitions.claim(key, "inline", plan).outcome == "claimed", "the second try takes the lock"
    assert holds(run) == {"c": "Y-1"}


def test_the_wake_up_is_not_lost_when_the_rpc_looks_before_the_waiter_has_committed(lab: Lab) -> None:
    y = locking("Y", C)
    lab.define(y, start=False)
    run = lab.start()
    (key,) = lab.create(y)
    calling = Calling(lab, lab.flow.call_on_c)
    with transaction.atomic():
        rows("INSERT INTO dexflows_lock_wait VALUES (%s, 'Y', 1, '{}', '{}', -1, now())", run)
        claiming = in_thread(lab.run, key)
        wait_until_blocked("dexflows_claim")
        calling.end()
        assert lab.bell.names() == [], "the RPC saw no waiter"
        transaction.set_rollback(True)
    assert result(claiming), "the waiter tried once more after its row was committed"
    assert step(run, "Y-1") == "COMPLETED"


def test_steps_behind_a_waiter_for_an_rpc_follow_in_order(lab: Lab) -> None:
    order: list[str] = []

    def note(context: Any, input: str) -> Any:
        order.append(context.step_execution_id)
        return dead_end()

    y = locking("Y", C, handler=note)
    lab.define(y, start=False)
    run = lab.start()
    keys = lab.create(y, y, y)
    calling = Calling(lab, lab.flow.call_on_c)
    for key in keys:
        assert not lab.run(key)
    calling.end()
    assert lab.bell.names() == ["Y-1"]
    lab.run_all()
    assert order == ["Y-1", "Y-2", "Y-3"]
    assert waiters(run) == []


def test_handlers_without_the_lock_are_not_stopped(lab: Lab) -> None:
    holding = Holding(lab, C)
    writer = locking("Writer", handler=lambda context, input: (LabFlow.c.set(context, 7), dead_end())[1])
    lab.define(holding.step, writer, start=False)
    lab.start()
    holding.begin()
    assert lab.run(lab.create(writer)[0])
    lab.client.set_attribute("flow", LabFlow.c, 8)
    assert lab.client.invoke_rpc(lab.flow.read, "flow") == 8
    holding.end()


def test_other_runs_and_other_instances_go_on_while_a_call_stands_still_with_uncommitted_writes(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.start("other")
    written = Pause()

    def write(context: Any) -> None:
        LabFlow.m.set(context, "x", 1)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO dexflows_attribute VALUES (%s, 'm', 'x', '', '1', now())", (context.run_id,))
        written.here()

    lab.flow.on_call = write
    on_x, on_y = (RPCInvokeOptions(lock_attribute_map_instances=(LabFlow.m.lock(i),)) for i in "xy")
    standing = in_thread(lambda: lab.client.invoke_rpc(lab.flow.call, "flow", options=on_x))
    with written.reached():
        lab.flow.on_call = lambda context: LabFlow.m.set(context, "y", 2)
        lab.client.invoke_rpc(lab.flow.call, "flow", options=on_y)
        lab.client.invoke_rpc(lab.flow.call, "other", options=on_x)
        lab.client.set_attribute("flow", LabFlow.c, 3)
    result(standing)
    assert lab.client.get_attributes("flow", LabFlow.m.load("x"), LabFlow.m.load("y"), LabFlow.c) == [1, 2, 3]


def test_locked_read_modify_write_by_eight_threads_of_rpcs_and_steps_loses_no_update(lab: Lab) -> None:
    def bump(context: Any, input: str) -> Any:
        LabFlow.c.set(context, (LabFlow.c.get(context) or 0) + 1)
        return dead_end()

    y = locking("Y", C, handler=bump)
    lab.define(y, start=False)
    run = lab.start()
    keys = lab.create(*[y] * 24)
    ready = threading.Barrier(8)

    def run_steps(mine: list[Any]) -> int:
        ready.wait(DEADLINE)
        for key in mine:
            lab.run(key)
        return 0

    def call_rpcs() -> int:
        ready.wait(DEADLINE)
        acknowledged = 0
        for _ in range(40):
            try:
                lab.client.invoke_rpc(lab.flow.bump, "flow")
                acknowledged += 1
            except RpcLockConflictError:
                continue
        return acknowledged

    racing = [in_thread(run_steps, keys[part::4]) for part in range(4)] + [in_thread(call_rpcs) for _ in range(4)]
    acknowledged = sum(result(each) for each in racing)
    lab.run_all()
    assert waiters(run) == []
    assert holds(run) == {}
    assert value("SELECT count(*) FROM dexflows_step_execution WHERE state <> 'COMPLETED'") == 0
    assert lab.client.get_attribute("flow", LabFlow.c) == 24 + acknowledged


def test_a_handler_that_calls_an_rpc_meets_its_own_locks(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    def call(context: Any) -> str:
        number = LabFlow.c.get(context) or 0
        lab.client.invoke_rpc(lab.flow.call_on_b, "flow")
        with pytest.raises(RpcLockConflictError) as caught:
            lab.client.invoke_rpc(lab.flow.bump, "flow")
        LabFlow.c.set(context, number + 1)
        return ",".join(caught.value.locks)

    calls = iter([call, lambda context: "other"])
    lab.flow.on_call = lambda context: next(calls)(context)
    assert lab.client.invoke_rpc(lab.flow.call_on_c, "flow") == "c"
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 2
