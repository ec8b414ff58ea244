"""An RPC that hangs, is cut off or deadlocks: its caller gets an answer, its locks are free, nothing of it remains."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from dexflows.engine import handler_thread
from dexflows.engine.keys import LoadSet, LockSet
from dexflows.engine.rpc import open_run
from dexflows.errors import RpcLockConflictError, RpcTimeoutError, UnavailableError
from tests.engine.kit import DEADLINE, Lab, Pause, in_thread, result, rows, value, wait_until, wait_until_blocked
from tests.flows_lab import LabFlow


def busy_loop(released: threading.Event) -> None:
    while not released.is_set():
        sum(range(1000))


def long_statement(released: threading.Event) -> None:
    rows("SELECT pg_sleep(60)")


def wait(released: threading.Event) -> None:
    released.wait(DEADLINE)


@pytest.mark.parametrize("hang", [wait, busy_loop, long_statement])
def test_a_handler_that_hangs_is_given_up_promptly_with_its_locks_free_and_nothing_written(
    lab: Lab, hang: Callable[[threading.Event], None]
) -> None:
    released, ended = threading.Event(), threading.Event()

    def work(context: Any) -> None:
        LabFlow.c.set(context, 100)
        Group.objects.create(name="from the RPC")
        try:
            hang(released)
        finally:
            ended.set()

    lab.define()
    lab.start()
    lab.flow.on_call = work
    started = time.monotonic()
    with pytest.raises(RpcTimeoutError):
        lab.client.invoke_rpc(lab.flow.call_briefly_on_c, "flow")
    assert 0.3 <= time.monotonic() - started < 2.5
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    assert not Group.objects.exists()
    released.set()
    assert ended.wait(DEADLINE)
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 2
    assert not Group.objects.exists()


class Zombie:
    """A handler that is given up while it stands still, and then tries to write."""

    def __init__(self, lab: Lab, write: Callable[[], Any]) -> None:
        self.pause = Pause()
        self.ended = threading.Event()
        self.error: BaseException | None = None

        def work(context: Any) -> None:
            try:
                with transaction.atomic(), connection.cursor() as self.cursor:
                    self.cursor.execute("SELECT 1")
                    self.pause.here()
                    write()
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.ended.set()

        lab.flow.on_call = work
        with pytest.raises(RpcTimeoutError):
            lab.client.invoke_rpc(lab.flow.call_briefly, "flow")

    def wake(self) -> None:
        self.pause.release()
        assert self.ended.wait(DEADLINE)


def test_a_zombie_cannot_write_through_the_orm_or_an_open_cursor(lab: Lab) -> None:
    lab.define()
    lab.start()
    by_orm = Zombie(lab, lambda: Group.objects.create(name="late"))
    by_orm.wake()
    by_cursor = Zombie(lab, lambda: by_cursor.cursor.execute("INSERT INTO auth_group (name) VALUES ('late')"))
    by_cursor.wake()
    assert by_orm.error is not None
    assert by_cursor.error is not None
    assert not Group.objects.exists()


def test_a_zombie_cannot_write_into_the_next_call_of_the_same_thread(lab: Lab) -> None:
    lab.define()
    lab.start()
    zombie = Zombie(lab, lambda: Group.objects.create(name="late"))

    def next_call(context: Any) -> None:
        Group.objects.create(name="mine")
        zombie.wake()
        with transaction.atomic():
            Group.objects.create(name="mine too")

    lab.flow.on_call = next_call
    assert lab.client.invoke_rpc(lab.flow.call, "flow") == "done"
    assert zombie.error is not None
    assert sorted(Group.objects.values_list("name", flat=True)) == ["mine", "mine too"]


def test_a_handlers_thread_ends_with_its_caller_and_with_a_hang(lab: Lab) -> None:
    seen: list[threading.Thread] = []
    lab.define()
    lab.start()
    lab.flow.on_call = lambda context: seen.append(threading.current_thread())
    result(in_thread(lab.client.invoke_rpc, lab.flow.call, "flow"))
    zombie = Zombie(lab, lambda: seen.append(threading.current_thread()))
    zombie.wake()
    assert len(seen) == 2
    for thread in seen:
        thread.join(DEADLINE)
        assert not thread.is_alive()
        assert thread.name == "dexflows-rpc"


def test_the_server_ends_the_transaction_when_the_calling_process_cannot(lab: Lab) -> None:
    lab.define()
    lab.start()
    begun, checked = threading.Event(), threading.Event()

    def suspended() -> None:
        with transaction.atomic():
            open_run("flow", None, True, LockSet.of((LabFlow.c.lock(),)), LoadSet.of({}, (), ()), "200")
            begun.set()
            assert checked.wait(DEADLINE)

    holding = in_thread(suspended)
    assert begun.wait(DEADLINE)

    def is_free() -> bool:
        try:
            return lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
        except RpcLockConflictError:
            return False

    wait_until(is_free, "the server did not end the transaction")
    checked.set()
    holding.exception(DEADLINE)


def test_a_connection_that_is_cut_in_the_middle_undoes_the_call_and_the_next_one_works(lab: Lab) -> None:
    def work(context: Any) -> None:
        Group.objects.create(name="lost")
        pid = value("SELECT pg_backend_pid()")
        assert result(in_thread(value, "SELECT pg_terminate_backend(%s, 5000)", pid))
        Group.objects.create(name="lost too")

    lab.define()
    lab.start()
    lab.flow.on_call = work
    with pytest.raises(UnavailableError):
        lab.client.invoke_rpc(lab.flow.call_on_c, "flow")
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    assert not Group.objects.exists()


def test_a_deadlock_restarts_the_whole_transaction_of_one_of_the_two(lab: Lab) -> None:
    lab.define()
    for name in ("one", "two"):
        lab.start(name)
        Group.objects.create(name=name)
    both = threading.Barrier(2)
    runs: list[str] = []

    def swap(context: Any) -> str:
        first, second = ("one", "two") if context.flow_id == "one" else ("two", "one")
        runs.append(first)
        Group.objects.filter(name=first).select_for_update().get()
        if runs.count(first) == 1:
            both.wait(DEADLINE)
        Group.objects.filter(name=second).select_for_update().get()
        LabFlow.c.set(context, runs.count(first))
        return first

    lab.flow.on_call = swap
    one, two = (in_thread(lab.client.invoke_rpc, lab.flow.call, name) for name in ("one", "two"))
    assert (result(one), result(two)) == ("one", "two")
    assert len(runs) == 3
    assert sorted(lab.client.get_attribute(name, LabFlow.c) for name in ("one", "two")) == [1, 2]


def test_a_deadlock_inside_a_client_call_of_the_handler_restarts_the_handler(lab: Lab) -> None:
    lab.define()
    run = lab.start()
    lab.client.set_attribute("flow", LabFlow.note, "first")
    Group.objects.create(name="one")
    group_locked, waits = Pause(), Pause()
    tries: list[int] = []

    def work(context: Any) -> None:
        tries.append(1)
        Group.objects.filter(name="one").select_for_update().get()
        if len(tries) == 1:
            group_locked.here()
        lab.client.set_attribute("flow", LabFlow.note, "from the handler")

    def other() -> None:
        with transaction.atomic():
            rows("SELECT 1 FROM dexflows_attribute WHERE run_id = %s FOR UPDATE", run)
            group_locked.release()
            waits.here()
            Group.objects.filter(name="one").select_for_update().get()

    lab.flow.on_call = work
    calling = in_thread(lab.client.invoke_rpc, lab.flow.call, "flow")
    group_locked.wait()
    blocking = in_thread(other)
    wait_until_blocked("dexflows_rpc_commit")
    waits.release()
    assert result(calling) == "done"
    result(blocking)
    assert len(tries) == 2
    assert lab.client.get_attribute("flow", LabFlow.note) == "from the handler"


def test_ending_a_session_that_has_ended_is_no_error() -> None:
    rows("SELECT 1")
    handler_thread.end_session(connection)
    connection.close()
    handler_thread.end_session(connection)
    assert value("SELECT 1") == 1
