"""Waiting from outside: for a run, a Step execution, an Attribute; and what many waiters cost."""

import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from dexflows import (
    Attribute,
    AttributeMatch,
    Flow,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    IdReusePolicy,
    InvalidRequestError,
    LongPollTimeoutError,
    PersistenceSchema,
    RetryPolicy,
    StartFlowOptions,
    StepExecutionId,
    StepList,
    StopFlowOptions,
    StopType,
    ValueMappingError,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
    go_to,
    register,
)
from dexflows.client import Client
from dexflows.watching import close_of, look, watcher
from tests.engine.kit import DEADLINE, Lab, in_thread, result, rows, value, wait_until
from tests.engine.test_round_trips import trips
from tests.flows_lab import LabFlow, LabStep

ANEW = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
AT_ONCE = WaitForStepCompletionOptions(request_timeout=0)
MATCH_AT_ONCE = WaitForAttributeOptions(request_timeout=0)
Y1 = StepExecutionId("Y")
equal_to = AttributeMatch.equal_to
ONCE = RetryPolicy(maximum_attempts=1)


@pytest.fixture(autouse=True)
def nobody_is_left_waiting() -> Iterator[None]:
    yield
    wait_until(lambda: watcher.waiting == 0 and sessions() == 0, "a waiter or a session is left")


def sessions(state: str = "%") -> int:
    """How many sessions others have in this database."""
    found: int = value(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state LIKE %s",
        state,
    )
    return found


def wait_until_waiting(number: int = 1) -> None:
    """Wait until so many have left the looking to the Watcher."""
    wait_until(lambda: watcher.waiting == number, f"not {number} are waiting")


@pytest.fixture
def flow(lab: Lab) -> Lab:
    """A running Flow without Steps."""
    lab.define(start=False)
    lab.start()
    return lab


def test_a_wait_without_a_run_id_is_for_the_run_that_was_the_latest_when_it_began(flow: Lab) -> None:
    waiting = in_thread(flow.client.wait_for_flow, "flow", DEADLINE)
    wait_until_waiting()
    flow.start(options=ANEW)
    assert result(waiting).status == "TERMINATED"


def test_a_wait_follows_a_failed_run_to_the_one_that_retries_it_unless_the_run_is_given(flow: Lab) -> None:
    first = flow.client.describe_flow("flow").run_id
    following = in_thread(flow.client.wait_for_flow, "flow", DEADLINE)
    given = in_thread(lambda: flow.client.wait_for_flow("flow", DEADLINE, run_id=first))
    wait_until_waiting(2)
    with transaction.atomic():
        flow.client.stop_flow("flow", StopFlowOptions(type=StopType.FAIL, reason="first"))
        retry = flow.start(options=ANEW)
        rows("UPDATE dexflows_run SET retried_by = %s WHERE run_id = %s", retry, first)
    assert result(given).error_message == "first"
    wait_until_waiting()
    flow.client.stop_flow("flow", StopFlowOptions(type=StopType.FAIL, reason="second"))
    assert result(following).error_message == "second"


def test_a_step_execution_is_waited_for_before_it_exists(lab: Lab) -> None:
    y = LabStep("Y")
    lab.define(LabStep("X", lambda context, input: go_to(y, "")), y)
    lab.start()
    waiting = in_thread(lab.client.wait_for_step_completion, "flow", Y1)
    wait_until_waiting()
    lab.run_all()
    assert result(waiting) is None
    assert lab.client.wait_for_step_completion("flow", Y1, AT_ONCE) is None
    with pytest.raises(LongPollTimeoutError, match="Y-2"):
        lab.client.wait_for_step_completion("flow", StepExecutionId("Y", 2), AT_ONCE)
    lab.client.stop_flow("flow")
    assert lab.client.wait_for_step_completion("flow", Y1, AT_ONCE) is None, "also of a closed run"


def test_a_step_execution_that_failed_is_said_to_have(lab: Lab) -> None:
    def fail(context: Any, input: str) -> Any:
        raise RuntimeError("boom")

    lab.define(LabStep("Y", fail, execute_retry=ONCE))
    lab.start()
    waiting = in_thread(lab.client.wait_for_step_completion, "flow", Y1)
    wait_until_waiting()
    lab.run_all()
    with pytest.raises(FlowNotActiveOrNotFoundError, match=r"Y-1 of Flow 'flow' is FAILED; its run .* is FAILED"):
        result(waiting)


def test_a_step_execution_that_was_canceled_or_never_came_is_said_to_be_so(lab: Lab) -> None:
    lab.define(LabStep("X"), LabStep("Y"))
    lab.start()
    canceled = in_thread(lab.client.wait_for_step_completion, "flow", StepExecutionId("X"))
    missing = in_thread(lab.client.wait_for_step_completion, "flow", Y1)
    wait_until_waiting(2)
    lab.client.stop_flow("flow")
    with pytest.raises(FlowNotActiveOrNotFoundError, match=r"X-1 of Flow 'flow' is CANCELED; its run .* is CANCELED"):
        result(canceled)
    with pytest.raises(FlowNotActiveOrNotFoundError, match=r"Y-1 of Flow 'flow' was never created; its run .*CANCELED"):
        result(missing)


def test_a_cancellation_within_a_running_run_ends_the_wait(lab: Lab) -> None:
    x = LabStep("X")
    lab.define(x)
    lab.start()
    waiting = in_thread(lab.client.wait_for_step_completion, "flow", StepExecutionId("X"))
    wait_until_waiting()
    lab.flow.on_call = lambda context: lab.cancel(x)
    lab.client.invoke_rpc(lab.flow.call, "flow")
    with pytest.raises(FlowNotActiveOrNotFoundError, match=r"is CANCELED; its run .* is RUNNING"):
        result(waiting)


def test_an_attribute_is_waited_for_until_it_has_the_value(flow: Lab) -> None:
    match = in_thread(flow.client.wait_for_attribute_match, "flow", LabFlow.note, equal_to("x"))
    in_map = in_thread(flow.client.wait_for_attribute_match, "flow", LabFlow.m, "a ä", equal_to(0))
    wait_until_waiting(2)
    flow.client.set_attributes("flow", (LabFlow.note, "y"), (LabFlow.m, "other", 0), (LabFlow.m, "a ä", 1))
    with pytest.raises(LongPollTimeoutError, match=r"m/a%20%C3%A4 of Flow 'flow' does not match after 0 s"):
        flow.client.wait_for_attribute_match("flow", LabFlow.m, "a ä", equal_to(0), MATCH_AT_ONCE)
    assert watcher.waiting == 2
    flow.client.set_attributes("flow", (LabFlow.note, "x"), (LabFlow.m, "a ä", 0))
    assert (result(match), result(in_map)) == ("x", 0)


def test_absence_is_waited_for_and_a_default_counts_where_there_is_no_value(flow: Lab) -> None:
    client = flow.client
    assert client.wait_for_attribute_match("flow", LabFlow.c, equal_to(0), MATCH_AT_ONCE) == 0, "the default"
    assert client.wait_for_attribute_match("flow", LabFlow.a, equal_to(None), options=MATCH_AT_ONCE) is None
    client.set_attributes("flow", (LabFlow.c, 5), (LabFlow.a, "x"))
    waits = [
        in_thread(client.wait_for_attribute_match, "flow", definition, equal_to(wanted))
        for definition, wanted in ((LabFlow.c, 0), (LabFlow.c, None), (LabFlow.a, None))
    ]
    wait_until_waiting(3)
    client.set_attributes("flow", (LabFlow.c, None), (LabFlow.a, None))
    assert [result(each) for each in waits] == [0, None, None]


def test_a_run_that_closes_ends_the_wait_but_what_it_left_still_matches(flow: Lab) -> None:
    first = flow.client.describe_flow("flow").run_id
    flow.client.set_attribute("flow", LabFlow.note, "x")
    waiting = in_thread(flow.client.wait_for_attribute_match, "flow", LabFlow.note, equal_to("y"))
    wait_until_waiting()
    flow.client.stop_flow("flow")
    with pytest.raises(
        FlowNotActiveOrNotFoundError, match=r"note of Flow 'flow' does not match; its run .* is CANCELED"
    ):
        result(waiting)
    assert flow.client.wait_for_attribute_match("flow", LabFlow.note, equal_to("x")) == "x"
    flow.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING))
    assert flow.client.wait_for_attribute_match("flow", LabFlow.note, equal_to("x"), run_id=first) == "x"
    with pytest.raises(LongPollTimeoutError):
        flow.client.wait_for_attribute_match("flow", LabFlow.note, equal_to("x"), MATCH_AT_ONCE)


def test_equal_values_match_however_they_are_written(lab: Lab) -> None:
    class Typed(Flow[str]):
        table = Attribute("table", dict[str, float])
        some = Attribute("some", set[str])

        def get_steps(self) -> StepList[str]:
            return StepList.empty()

        def get_persistence_schema(self) -> PersistenceSchema:
            return PersistenceSchema.of(self.table, self.some)

    client, typed = lab.client, register(Typed())
    client.start_flow(typed, "flow", "")
    client.set_attributes("flow", (Typed.table, {"a": 1.0, "b": 2.5}), (Typed.some, {"x", "y"}))
    matched = client.wait_for_attribute_match("flow", Typed.table, equal_to({"b": 2.5, "a": 1.0}), MATCH_AT_ONCE)
    assert (matched, type(matched["a"])) == ({"a": 1.0, "b": 2.5}, float)
    assert client.wait_for_attribute_match("flow", Typed.some, equal_to({"y", "x"}), MATCH_AT_ONCE) == {"x", "y"}


@pytest.mark.parametrize(
    ("wrong", "arguments"),
    [
        (ValueMappingError, (LabFlow.c, equal_to("text"))),
        (ValueMappingError, (LabFlow.note, equal_to(1))),
        (ValueMappingError, (LabFlow.m, "a/b", equal_to(1))),
        (InvalidRequestError, (LabFlow.m, equal_to(1))),
        (InvalidRequestError, (LabFlow.c, "k", equal_to(1))),
        (InvalidRequestError, (LabFlow.c, 1)),
        (InvalidRequestError, (LabFlow.c,)),
        (InvalidRequestError, (LabFlow.c, equal_to(1), 5)),
        (InvalidRequestError, (LabFlow.c, equal_to(1), WaitForStepCompletionOptions())),
        (InvalidRequestError, (Attribute("c", int), equal_to(1))),
        (InvalidRequestError, (Attribute("secret", str, hard_delete_on_null=True), equal_to("x"))),
    ],
)
def test_a_match_that_cannot_be_is_refused(flow: Lab, wrong: type[Exception], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(wrong):
        flow.client.wait_for_attribute_match("flow", *arguments)


@pytest.mark.parametrize(
    "wrong", ["Y-1", StepExecutionId("a\0b"), StepExecutionId("a\ud800"), StepExecutionId("Y", 2**31)]
)
def test_a_step_execution_that_cannot_be_is_refused(flow: Lab, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        flow.client.wait_for_step_completion("flow", wrong)


def test_options_of_a_wrong_kind_are_refused(flow: Lab) -> None:
    with pytest.raises(InvalidRequestError):
        flow.client.wait_for_step_completion("flow", Y1, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), True, "5", timedelta(seconds=-1), 1e12])
def test_a_wrong_timeout_is_refused(flow: Lab, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError, match="timeout"):
        flow.client.wait_for_flow("flow", wrong)
    for options in (WaitForStepCompletionOptions, WaitForAttributeOptions):
        with pytest.raises(ValueError, match="request_timeout"):
            options(request_timeout=wrong)


@pytest.mark.parametrize("run_id", [None, "01890000-0000-7000-8000-000000000000"])
def test_a_missing_flow_is_not_found(flow: Lab, run_id: str | None) -> None:
    flow_id = "flow" if run_id else "missing"
    for wait in (
        lambda: flow.client.wait_for_flow(flow_id, run_id=run_id),
        lambda: flow.client.wait_for_step_completion(flow_id, Y1, run_id=run_id),
        lambda: flow.client.wait_for_attribute_match(flow_id, LabFlow.c, equal_to(0), run_id=run_id),
    ):
        with pytest.raises(FlowNotFoundError):
            wait()


def test_a_run_that_is_deleted_meanwhile_is_not_found(flow: Lab) -> None:
    waits: list[Future[Any]] = [
        in_thread(flow.client.wait_for_flow, "flow"),
        in_thread(flow.client.wait_for_step_completion, "flow", Y1),
        in_thread(flow.client.wait_for_attribute_match, "flow", LabFlow.c, equal_to(1)),
    ]
    wait_until_waiting(3)
    rows("DELETE FROM dexflows_run")
    for waiting in waits:
        with pytest.raises(FlowNotFoundError):
            result(waiting)


@pytest.mark.parametrize("timeout", [0.004, 0.2, timedelta(milliseconds=100)])
def test_a_wait_ends_at_its_time_limit(flow: Lab, timeout: Any) -> None:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    began = time.monotonic()
    with pytest.raises(LongPollTimeoutError, match=f"'flow' is still running after {seconds:g} s"):
        flow.client.wait_for_flow("flow", timeout)
    assert seconds <= time.monotonic() - began < seconds + 2


def test_what_happens_between_a_look_and_the_registration_is_not_lost(flow: Lab) -> None:
    run_id = UUID(flow.client.describe_flow("flow").run_id)
    assert look(close_of(run_id)) == {}
    flow.client.stop_flow("flow")
    with watcher.watch(close_of(run_id)) as happened:
        assert result(happened).status == "CANCELED"


def test_everything_awaited_is_asked_for_in_one_statement(lab: Lab) -> None:
    lab.define(start=False)
    runs = [lab.start(str(number)) for number in range(50)]
    lab.client.stop_flow("7")
    found: dict[str, Any] = {}
    assert trips(lambda: found.update(look(*map(close_of, runs)))) == 1
    assert list(found) == [close_of(runs[7])]


def start_waiting(lab: Lab, number: int) -> list[Future[Any]]:
    """Let so many threads wait for the Flow, without all of them needing a connection at one time."""
    waits: list[Future[Any]] = []
    while len(waits) < number:
        waits += [in_thread(lab.client.wait_for_flow, "flow", 60) for _ in range(20)]
        wait_until_waiting(len(waits))
    return waits


def test_100_waiting_threads_hold_one_session_and_no_transaction_and_wake_soon(flow: Lab) -> None:
    waits = start_waiting(flow, 100)
    wait_until(lambda: sessions() <= 1, "waiters hold sessions")
    assert sessions("idle in transaction%") == 0
    assert [thread.name for thread in threading.enumerate()].count("dexflows-watcher") == 1
    flow.client.stop_flow("flow")
    began = time.monotonic()
    with watcher.watch(close_of(UUID(flow.client.describe_flow("flow").run_id))) as happened:
        result(happened)
    wait_until(lambda: watcher.waiting == 0, "waiters sleep on")
    assert time.monotonic() - began < 2
    assert {result(each).status for each in waits} == {"CANCELED"}


def test_nothing_is_left_when_nobody_waits(flow: Lab) -> None:
    with pytest.raises(LongPollTimeoutError):
        flow.client.wait_for_flow("flow", 0.1)
    wait_until(lambda: sessions() == 0, "the Watcher keeps its session")
    wait_until(lambda: "dexflows-watcher" not in {each.name for each in threading.enumerate()}, "its thread lives on")


def test_a_short_wait_keeps_its_connection(flow: Lab) -> None:
    pid = value("SELECT pg_backend_pid()")
    with pytest.raises(LongPollTimeoutError):
        flow.client.wait_for_flow("flow", 0.02)
    assert value("SELECT pg_backend_pid()") == pid


@pytest.mark.parametrize(
    ("use", "kept"),
    [
        ("SELECT 1", False),
        ("DECLARE kept CURSOR WITH HOLD FOR SELECT 1", True),
        ("SELECT pg_advisory_lock(1)", True),
        ("LISTEN kept", True),
        ("CREATE TEMPORARY TABLE kept ()", True),
    ],
)
def test_a_connection_is_given_back_unless_its_session_holds_something(flow: Lab, use: str, kept: bool) -> None:
    def wait() -> bool:
        rows(use)
        pid.set_result(value("SELECT pg_backend_pid()"))
        flow.client.wait_for_flow("flow", DEADLINE)
        same: bool = value("SELECT pg_backend_pid()") == pid.result()
        return same

    pid: Future[int] = Future()
    waiting = in_thread(wait)
    looked_at = "SELECT query LIKE '%%pg_my_temp_schema%%' FROM pg_stat_activity WHERE pid = %s"
    result(pid)
    wait_until(lambda: rows(looked_at, pid.result()) == ([(True,)] if kept else []), "the session is not cared for")
    flow.client.stop_flow("flow")
    assert result(waiting) is kept


def session_of_the_watcher(*others: int) -> int:
    """The process of the Watcher's session, once it is the only one beside this and `others`."""
    statement = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND pid <> ALL (%s)"
    )
    wait_until(lambda: len(rows(statement, list(others))) == 1, "the Watcher has no session")
    found: int = value(statement, list(others))
    return found


def start_wait(client: Client, timeout: float) -> tuple[Future[Any], int]:
    """Wait for the Flow in a thread; also gives the process of that thread's session."""
    pid: Future[int] = Future()

    def wait() -> Any:
        pid.set_result(value("SELECT pg_backend_pid()"))
        return client.wait_for_flow("flow", timeout)

    return in_thread(wait), result(pid)


def test_the_watcher_goes_on_when_its_session_is_ended(flow: Lab) -> None:
    waiting, pid = start_wait(flow.client, DEADLINE)
    ended = session_of_the_watcher(pid)
    rows("SELECT pg_terminate_backend(%s)", ended)
    assert session_of_the_watcher(pid, ended) != ended
    flow.client.stop_flow("flow")
    assert result(waiting).status == "CANCELED"


def test_waiters_outlast_an_outage_and_end_at_their_own_time(flow: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    short, first = start_wait(flow.client, 0.5)
    long, second = start_wait(flow.client, DEADLINE)
    ended = session_of_the_watcher(first, second)
    with monkeypatch.context() as outage:
        outage.setitem(connection.settings_dict, "PORT", "1")
        rows("SELECT pg_terminate_backend(%s)", ended)
        with pytest.raises(LongPollTimeoutError):
            result(short)
        assert not long.done()
    flow.client.stop_flow("flow")
    assert result(long).status == "CANCELED"


def test_a_forked_child_waits_with_a_watcher_of_its_own(flow: Lab) -> None:
    flow.start("child")
    waiting, pid = start_wait(flow.client, DEADLINE)
    own = [pid, session_of_the_watcher(pid)]
    connection.close()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(DEADLINE))
            if watcher.waiting:
                os._exit(3)
            ended = flow.client.wait_for_flow("child", DEADLINE).status
            os._exit(0 if ended == "TERMINATED" else 1)
        finally:
            os._exit(2)
    first = session_of_the_watcher(*own)
    session_of_the_watcher(*own, first)
    flow.client.stop_flow("child", StopFlowOptions(type=StopType.TERMINATE))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not waiting.done()
    flow.client.stop_flow("flow")
    assert result(waiting).status == "CANCELED"


def test_inside_a_transaction_the_caller_sees_what_it_has_not_committed_and_what_others_commit(flow: Lab) -> None:
    with transaction.atomic():
        flow.client.set_attribute("flow", LabFlow.note, "x")
        assert flow.client.wait_for_attribute_match("flow", LabFlow.note, equal_to("x"), MATCH_AT_ONCE) == "x"
        with pytest.raises(LongPollTimeoutError):
            flow.client.wait_for_flow("flow", 0.2)
        transaction.set_rollback(True)
    with transaction.atomic():
        pid = value("SELECT pg_backend_pid()")
        act_once_waited(flow.client, lambda: Client().stop_flow("flow"))
        assert value("SELECT pg_backend_pid()") == pid


def test_without_autocommit_the_caller_keeps_its_transaction(flow: Lab) -> None:
    connection.set_autocommit(False)
    try:
        rows("INSERT INTO auth_group (name) VALUES ('kept')")
        with pytest.raises(LongPollTimeoutError):
            flow.client.wait_for_flow("flow", 0.2)
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert value("SELECT count(*) FROM auth_group") == 1


def act_once_waited(client: Client, act: Callable[[], object]) -> None:
    """Drive a wait by hand: let another thread act after its first look, and let it look until it is over."""
    looks: Any = inspect.unwrap(Client.wait_for_flow)(client, "flow", DEADLINE)
    pause = next(looks)[1]
    assert pause < 0.01
    result(in_thread(act))
    with pytest.raises(StopIteration) as end:
        next(looks)
    assert end.value.value.status == "CANCELED"
