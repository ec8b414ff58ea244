"""The number of times that the hot paths wait for the database, BEGIN and COMMIT included, counted on the wire."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from dexflows import RetryPolicy, RPCInvokeOptions, RPCResult, StepMovement, dead_end, go_to, graceful_complete
from dexflows.engine import claims, transitions
from dexflows.errors import RpcLockConflictError
from dexflows.states import StepState
from tests.engine.kit import Lab, rows
from tests.engine.test_step_locks import Holding
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

LOCK_C = (LabFlow.c.lock(),)


class RoundTrips:
    """How often the server said that it is ready for the next query."""

    count = 0


@contextmanager
def round_trips() -> Iterator[RoundTrips]:
    """Count within the block what this thread's session waits for, from libpq's own trace."""
    counted = RoundTrips()
    rows("SELECT 1")
    session = connection.connection.pgconn
    with tempfile.TemporaryFile("w+") as trace:
        session.trace(trace.fileno())
        try:
            yield counted
        finally:
            session.untrace()
            trace.seek(0)
            counted.count = trace.read().count("ReadyForQuery")


def trips(act: Callable[[], Any]) -> int:
    with round_trips() as counted:
        act()
    return counted.count


def test_the_counter_counts_every_statement() -> None:
    assert trips(lambda: rows("SELECT 1")) == 1
    assert trips(lambda: [rows("SELECT 1"), rows("SELECT 2")]) == 2


def test_start_takes_one(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    assert trips(lambda: lab.start("one")) == 1
    assert lab.bell.names() == ["Y-1"]


def test_claim_and_settle_take_one_each(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start()
    (key,) = lab.bell.take()
    with round_trips() as counted:
        claim = claims.claim(key, lab.worker)
    assert claim is not None
    assert counted.count == 1
    payload = {"state": StepState.COMPLETED}
    assert trips(lambda: transitions.settle(key, claim.token, payload)) == 1


def test_a_claim_that_takes_locks_or_waits_for_a_step_takes_one(lab: Lab) -> None:
    holding = Holding(lab, LabFlow.a.lock())
    waiting, free = (
        LabStep("W", execute_lock_attributes=(LabFlow.a.lock(),)),
        LabStep("F", execute_lock_attributes=LOCK_C),
    )
    lab.define(holding.step, waiting, free, start=False)
    lab.start()
    holding.begin()
    first, second = lab.create(waiting, free)
    assert trips(lambda: claims.claim(first, lab.worker)) == 1
    assert trips(lambda: claims.claim(second, lab.worker)) == 1
    holding.end()


def test_a_chain_in_place_takes_one_per_step_and_one_to_begin(lab: Lab) -> None:
    link = LabStep("Link", lambda c, i: go_to(link, str(int(i) + 1)) if int(i) < 10 else graceful_complete("end"))
    lab.define(link)
    lab.start(input="1")
    (key,) = lab.bell.take()
    assert trips(lambda: lab.run(key)) == 11
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "end"


def test_wait_for_and_execute_in_place_take_one_each_and_one_to_begin(lab: Lab) -> None:
    lab.define(WaitingLabStep("Y"))
    lab.start()
    (key,) = lab.bell.take()
    assert trips(lambda: lab.run(key)) == 3


def test_writing_events_locks_and_a_fan_out_cost_no_more(lab: Lab) -> None:
    leaf = LabStep("Leaf")

    def work(context: Any, input: str) -> Any:
        LabFlow.c.set(context, 1)
        LabFlow.m.set(context, "x", 1)
        context.record_event("SEEN", 1)
        return go_to(leaf, "").with_canceling_steps(leaf) if input else dead_end()

    lab.define(LabStep("Y", work, execute_lock_attributes=LOCK_C), leaf)
    lab.start()
    (key,) = lab.bell.take()
    assert trips(lambda: lab.run(key)) == 2


def test_a_failed_attempt_takes_two(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        raise RuntimeError("boom")

    lab.define(LabStep("Y", work, execute_retry=RetryPolicy()))
    lab.start()
    (key,) = lab.bell.take()
    assert trips(lambda: lab.run(key)) == 2


def test_an_atomic_step_takes_begin_settle_and_commit_besides_its_own_statements(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda c, i: (rows("SELECT 1"), graceful_complete("ok"))[1], execute_atomic=True))
    lab.start()
    (key,) = lab.bell.take()
    assert trips(lambda: lab.run(key)) == 5, "claim, BEGIN, the handler's own, settle, COMMIT"


def test_a_reading_rpc_takes_one(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.client.invoke_rpc(lab.flow.read, "flow")
    assert trips(lambda: lab.client.invoke_rpc(lab.flow.read, "flow")) == 1


def test_a_reading_rpc_whose_handler_queries_takes_five(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.flow.on_call = lambda context: str(rows("SELECT 1"))
    assert trips(lambda: lab.client.invoke_rpc(lab.flow.call, "flow")) == 5, "begin, BEGIN, its limit, its own, COMMIT"


@pytest.mark.parametrize("instances", [(), ("x",), ("x", "y", "z")])
def test_a_locking_and_writing_rpc_takes_three_however_much_it_locks(lab: Lab, instances: tuple[str, ...]) -> None:
    lab.define()
    lab.start()
    options = RPCInvokeOptions(
        lock_attribute_map_instances=tuple(LabFlow.m.lock(each) for each in instances),
        load_attribute_map_instances=tuple(LabFlow.m.load(each) for each in instances),
    )
    lab.client.invoke_rpc(lab.flow.bump, "flow", options=options)
    taken = trips(lambda: lab.client.invoke_rpc(lab.flow.bump, "flow", options=options))
    assert taken == 3, "BEGIN, begin, and what it stores with COMMIT and one look for who waits"


def test_an_rpc_without_locks_that_starts_steps_takes_three(lab: Lab) -> None:
    leaf = LabStep("Leaf")
    lab.define(leaf, start=False)
    lab.start()
    lab.flow.on_call = lambda context: RPCResult(
        "ok", next_steps=(StepMovement.of(leaf, ""), StepMovement.of(leaf, ""))
    )
    assert trips(lambda: lab.client.invoke_rpc(lab.flow.call, "flow")) == 3, (
        "begin, BEGIN, and what it stores with COMMIT"
    )
    assert lab.bell.names() == ["Leaf-1", "Leaf-2"]


def test_a_refused_rpc_takes_four(lab: Lab) -> None:
    holding = Holding(lab, LabFlow.c.lock())
    lab.define(holding.step, start=False)
    lab.start()
    holding.begin()

    def refused() -> None:
        with pytest.raises(RpcLockConflictError):
            lab.client.invoke_rpc(lab.flow.bump, "flow")

    assert trips(refused) == 4, "BEGIN, begin, ROLLBACK, and one look for who met its passing locks"
    holding.end()


def test_the_clients_own_reads_and_writes(lab: Lab) -> None:
    lab.define()
    lab.start()
    assert trips(lambda: lab.client.describe_flow("flow")) == 1
    assert trips(lambda: lab.client.get_attributes("flow", LabFlow.c, LabFlow.m.load("x"))) == 2
    assert trips(lambda: lab.client.set_attributes("flow", (LabFlow.c, 1), (LabFlow.m, "x", 1))) == 4
    assert trips(lambda: lab.client.stop_flow("flow")) == 1
    assert trips(lambda: lab.client.wait_for_flow("flow", 0)) == 2
