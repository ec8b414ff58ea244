"""The client: describing, waiting, stopping, and Attributes from outside."""

import asyncio
import inspect
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from dexflows import Attribute, IdReusePolicy, StartFlowOptions, force_complete, graceful_complete
from dexflows.async_client import AsyncClient
from dexflows.client import Client
from dexflows.errors import (
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    InvalidRequestError,
    LongPollTimeoutError,
    ValueMappingError,
    ValueTooLargeError,
)
from dexflows.options import StopFlowOptions
from dexflows.states import RunStatus, StopType
from dexflows.targets import AttributeMatch
from tests.engine.kit import DEADLINE, Lab, Pause, in_thread, result, rows, steps, value, wait_until_blocked
from tests.engine.test_step_locks import Holding
from tests.flows_lab import LabFlow, LabStep

MISSING_RUN = "01890000-0000-7000-8000-000000000000"


def test_a_flow_is_described_by_its_latest_or_a_given_run(lab: Lab) -> None:
    lab.define()
    first = lab.start()
    anew = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
    second = lab.start(options=anew)
    latest, earlier = lab.client.describe_flow("flow"), lab.client.describe_flow("flow", run_id=str(first))
    assert (latest.run_id, latest.status, latest.closed_at) == (str(second), RunStatus.RUNNING, None)
    assert (earlier.run_id, earlier.status, earlier.flow_type) == (str(first), RunStatus.TERMINATED, "LabFlow")
    assert earlier.closed_at is not None
    assert latest.started_at.tzinfo is not None
    assert earlier.started_at <= earlier.closed_at <= latest.started_at


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.describe_flow("missing"),
        lambda client: client.describe_flow("flow", run_id=MISSING_RUN),
        lambda client: client.wait_for_flow("missing", 0),
        lambda client: client.get_attribute("missing", LabFlow.c),
        lambda client: client.get_attribute("flow", LabFlow.c, run_id=MISSING_RUN),
    ],
)
def test_reading_what_does_not_exist_is_not_found(lab: Lab, ask: Any) -> None:
    lab.define()
    lab.start()
    with pytest.raises(FlowNotFoundError):
        ask(lab.client)


@pytest.mark.parametrize(
    "act",
    [
        lambda client: client.stop_flow("missing"),
        lambda client: client.stop_flow("flow", run_id=MISSING_RUN),
        lambda client: client.set_attribute("missing", LabFlow.c, 1),
        lambda client: client.set_attributes("flow", (LabFlow.c, 1), run_id=MISSING_RUN),
    ],
)
def test_acting_on_what_does_not_exist_is_refused(lab: Lab, act: Any) -> None:
    lab.define()
    lab.start()
    with pytest.raises(FlowNotActiveOrNotFoundError):
        act(lab.client)


@pytest.mark.parametrize("bad", ["", "a/b", "x" * 256, None])
def test_a_bad_flow_id_or_run_id_is_a_bad_request_everywhere(lab: Lab, bad: Any) -> None:
    lab.define()
    lab.start()
    client = lab.client
    for ask in (client.describe_flow, client.wait_for_flow, client.stop_flow, client.get_attributes):
        with pytest.raises(InvalidRequestError):
            ask(bad)  # type: ignore[operator]
    with pytest.raises(InvalidRequestError):
        client.describe_flow("flow", run_id="no UUID")
    with pytest.raises(InvalidRequestError):
        client.invoke_rpc(lab.flow.read, bad)


@pytest.mark.parametrize(
    ("stop", "status"),
    [(StopType.CANCEL, "CANCELED"), (StopType.TERMINATE, "TERMINATED"), (StopType.FAIL, "FAILED")],
)
def test_stopping_closes_at_once_with_its_reason_and_cancels_open_steps(lab: Lab, stop: StopType, status: str) -> None:
    standing = Pause()
    slow = LabStep("Slow", lambda context, input: (standing.here(), graceful_complete("late"))[1])
    lab.define(slow)
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        lab.client.stop_flow("flow", StopFlowOptions(type=stop, reason="enough"))
        outcome = lab.client.wait_for_flow("flow", 0)
        assert (outcome.status, outcome.is_terminal, outcome.error_message) == (status, True, "enough")
        assert steps(run) == {"Slow-1": "CANCELED"}
    result(running)
    assert lab.client.wait_for_flow("flow", 0).completions == ()
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.stop_flow("flow")
    assert lab.client.wait_for_flow("flow", 0).status == status


def test_stopping_inside_a_transaction_that_is_rolled_back_stops_nothing(lab: Lab) -> None:
    lab.define()
    lab.start()
    with transaction.atomic():
        lab.client.stop_flow("flow")
        transaction.set_rollback(True)
    assert lab.client.describe_flow("flow").status == RunStatus.RUNNING


def test_stopping_a_given_run_does_not_hit_the_latest(lab: Lab) -> None:
    lab.define()
    first = lab.start()
    lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING))
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.stop_flow("flow", run_id=str(first))
    assert lab.client.describe_flow("flow").status == RunStatus.RUNNING


def test_waiting_ends_when_the_run_closes_and_tells_a_wait_that_ended_from_a_run_that_did(lab: Lab) -> None:
    y = LabStep("Y", lambda context, input: force_complete({"sum": 3}))
    lab.define(y)
    lab.start()
    with pytest.raises(LongPollTimeoutError):
        lab.client.wait_for_flow("flow", 0.01)
    waiting = in_thread(lab.client.wait_for_flow, "flow", 10)
    lab.run_all()
    outcome = result(waiting)
    assert (outcome.status, outcome.error_type, outcome.is_terminal) == (RunStatus.COMPLETED, None, True)
    (completion,) = outcome.completions
    assert (completion.step_type, completion.step_execution_id) == ("Y", "Y-1")
    assert outcome.single_output(dict[str, int]) == {"sum": 3}
    with pytest.raises(ValueMappingError):
        outcome.single_output(str)


def test_attributes_are_read_as_committed_with_defaults_and_also_of_closed_runs(lab: Lab) -> None:
    lab.define()
    run = lab.start()
    lab.client.set_attributes("flow", (LabFlow.note, "x"), (LabFlow.m, "k", 0))
    assert lab.client.get_attribute("flow", LabFlow.c) == 0, "the declared default"
    assert lab.client.get_attribute("flow", LabFlow.a) is None
    assert lab.client.get_attribute("flow", LabFlow.m, "k") == 0, "a stored 0 is no absence"
    lab.client.stop_flow("flow")
    selected = (LabFlow.m.load("absent"), LabFlow.note, LabFlow.m.load("k"))
    assert lab.client.get_attributes("flow", *selected) == [None, "x", 0]
    assert lab.client.get_attributes("flow", *selected, run_id=str(run)) == [None, "x", 0]
    assert lab.client.get_attributes("flow") == []
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.set_attribute("flow", LabFlow.note, "late")
    assert lab.client.get_attribute("flow", LabFlow.note) == "x"


def test_setting_none_deletes_and_deleting_what_is_absent_succeeds(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.client.set_attributes("flow", (LabFlow.note, "x"), (LabFlow.m, "k", 1))
    lab.client.set_attributes("flow", (LabFlow.note, None), (LabFlow.m, "k", None), (LabFlow.a, None))
    assert value("SELECT count(*) FROM dexflows_attribute") == 0


def test_a_batch_is_written_as_a_whole_or_not_at_all(lab: Lab, settings: Any) -> None:
    settings.DEXFLOWS = {"MAX_VALUE_BYTES": 100}
    lab.define()
    lab.start()
    wrong: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (ValueMappingError, (LabFlow.c, "text")),
        (ValueTooLargeError, (LabFlow.a, "x" * 200)),
        (InvalidRequestError, (Attribute("note", str), "x")),
        (InvalidRequestError, (LabFlow.m, 1)),
        (InvalidRequestError, (LabFlow.c, "k", 1)),
        (ValueMappingError, (LabFlow.m, "a/b", 1)),
        (InvalidRequestError, ()),
    ]
    for error, write in wrong:
        with pytest.raises(error):
            lab.client.set_attributes("flow", (LabFlow.note, "x"), write)
    assert value("SELECT count(*) FROM dexflows_attribute") == 0


def test_two_batches_over_the_same_attributes_in_opposite_order_do_not_deadlock(lab: Lab) -> None:
    lab.define()
    run = lab.start()
    lab.client.set_attributes("flow", (LabFlow.a, "0"), (LabFlow.b, "0"))
    with transaction.atomic():
        lab.client.set_attributes("flow", (LabFlow.b, "1"), (LabFlow.a, "1"))
        other = in_thread(lab.client.set_attributes, "flow", (LabFlow.a, "2"), (LabFlow.b, "2"))
        wait_until_blocked("dexflows_rpc_commit")
        assert value("SELECT count(*) FROM dexflows_attribute WHERE run_id = %s", run) == 2
    result(other)
    assert lab.client.get_attributes("flow", LabFlow.a, LabFlow.b) == ["2", "2"]


def test_writes_from_outside_are_not_held_up_by_locks(lab: Lab) -> None:
    holding = Holding(lab, LabFlow.c.lock(), LabFlow.m.lock_all())
    lab.define(holding.step, start=False)
    lab.start()
    holding.begin()
    lab.client.set_attributes("flow", (LabFlow.c, 5), (LabFlow.m, "k", 6))
    assert lab.client.get_attributes("flow", LabFlow.c, LabFlow.m.load("k")) == [5, 6]
    holding.end()


def test_a_wrong_selector_is_a_bad_request(lab: Lab) -> None:
    lab.define()
    lab.start()
    for ask in (
        lambda: lab.client.get_attribute("flow", LabFlow.m),
        lambda: lab.client.get_attribute("flow", LabFlow.c, "k"),
        lambda: lab.client.get_attribute("flow", Attribute("c", int)),
    ):
        with pytest.raises(InvalidRequestError):
            ask()


def test_an_instance_key_of_any_script_is_kept_apart_and_locked_under_its_encoded_name(lab: Lab) -> None:
    lab.define()
    lab.start()
    keys = ["a", "A", "ä", "a b", "100%", "*", "'", '"', "\\", "日本", "a\n"]
    lab.client.set_attributes("flow", *((LabFlow.m, key, number) for number, key in enumerate(keys)))
    assert lab.client.get_attributes("flow", *(LabFlow.m.load(key) for key in keys)) == list(range(len(keys)))
    assert LabFlow.m.lock("*").key != LabFlow.m.lock_all().key
    assert len({LabFlow.m.lock(key).key for key in keys}) == len(keys)


def test_the_async_client_has_the_same_methods_with_the_same_arguments(lab: Lab) -> None:
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public == {name for name in vars(AsyncClient) if not name.startswith("_")}
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in public)


def test_the_async_client_works(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda context, input: graceful_complete(input)))

    async def use() -> tuple[Any, ...]:
        client = AsyncClient()
        await client.start_flow(lab.flow, "flow", "in")
        bumped = await client.invoke_rpc(lab.flow.bump, "flow")
        await client.set_attribute("flow", LabFlow.note, "x")
        note = await client.get_attribute("flow", LabFlow.note)
        status = (await client.describe_flow("flow")).status
        with pytest.raises(LongPollTimeoutError):
            await client.wait_for_flow("flow", 0)
        await client.stop_flow("flow")
        return bumped, note, status, (await client.wait_for_flow("flow", 0)).status

    assert async_to_sync(use)() == (1, "x", "RUNNING", "CANCELED")
    assert rows("SELECT status FROM dexflows_run") == [("CANCELED",)]


def test_a_reason_is_kept_whatever_characters_it_has(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()
    lab.client.stop_flow("flow", StopFlowOptions(reason="a\0b\ud800"))
    assert lab.client.wait_for_flow("flow").error_message == "a\\x00b\\ud800"


def test_other_calls_of_the_async_client_go_on_while_one_waits(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    async def use() -> RunStatus:
        client = AsyncClient()
        waiting = asyncio.ensure_future(client.wait_for_flow("flow", DEADLINE))
        await asyncio.sleep(0)
        while (await client.describe_flow("flow")).status is RunStatus.RUNNING:
            await client.stop_flow("flow")
        status: RunStatus = (await waiting).status
        return status

    assert async_to_sync(use)() is RunStatus.CANCELED


@pytest.mark.parametrize(
    "call",
    [
        lambda lab: lab.client.start_flow(lab.flow, "other", "", StopFlowOptions()),
        lambda lab: lab.client.stop_flow("flow", "CANCEL"),
        lambda lab: lab.client.invoke_rpc(lab.flow.bump, "flow", options={}),
        lambda lab: lab.client.get_attribute("flow", "c"),
        lambda lab: lab.client.get_attributes("flow", "c"),
        lambda lab: lab.client.get_attributes("flow", LabFlow.ch),
        lambda lab: lab.client.get_attributes("flow", LabFlow.m),
        lambda lab: lab.client.wait_for_attribute_match("flow", LabFlow.ch, AttributeMatch.equal_to(1)),
    ],
)
def test_arguments_of_another_kind_are_refused_and_change_nothing(lab: Lab, call: Any) -> None:
    lab.define()
    lab.start()
    with pytest.raises(InvalidRequestError):
        call(lab)
    assert rows("SELECT flow_id, status FROM dexflows_run") == [("flow", "RUNNING")]
    assert lab.client.get_attribute("flow", LabFlow.c) == 0
