"""What one RPC does: everything in one transaction, or nothing at all."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from dexflows import Attribute, AttributeLock, RPCInvokeOptions, RPCResult, StepMovement, dead_end, force_complete
from dexflows.attribute import AttributeMap
from dexflows.errors import (
    FlowNotActiveOrNotFoundError,
    InvalidRequestError,
    RpcLockConflictError,
    ValueMappingError,
    ValueTooLargeError,
    WorkerInvocationError,
)
from dexflows.registry import registry
from tests.engine.kit import Lab, Pause, in_thread, result, rows, steps, value
from tests.engine.test_rpc_locks import Calling
from tests.flows_lab import LabFlow, LabStep


def failure(lab: Lab, method: Any, *arguments: Any) -> WorkerInvocationError:
    with pytest.raises(WorkerInvocationError) as raised:
        lab.client.invoke_rpc(method, "flow", *arguments)
    return raised.value


def test_attributes_orm_rows_steps_and_cancellations_of_one_rpc_appear_together(lab: Lab) -> None:
    y, z = LabStep("Y"), LabStep("Z")
    lab.define(y, z, start=False)
    run = lab.start()
    lab.create(y)
    standing = Pause()

    def work(context: Any) -> RPCResult[str]:
        LabFlow.note.set(context, "written")
        LabFlow.m.set(context, "x", 5)
        Group.objects.create(name="from the RPC")
        standing.here()
        return RPCResult("answer", next_steps=(StepMovement.of(z, "in"),), canceling_steps=(y,))

    lab.flow.on_call = work
    calling = in_thread(lambda: lab.client.invoke_rpc(lab.flow.call, "flow"))
    with standing.reached():
        assert (steps(run), lab.client.get_attribute("flow", LabFlow.note)) == ({"Y-1": "QUEUED"}, None)
        assert not Group.objects.exists()
        assert lab.bell.names() == []
    assert result(calling) == "answer"
    assert steps(run) == {"Y-1": "CANCELED", "Z-1": "QUEUED"}
    assert lab.client.get_attributes("flow", LabFlow.note, LabFlow.m.load("x")) == ["written", 5]
    assert Group.objects.filter(name="from the RPC").exists()
    assert lab.bell.names() == ["Z-1"]
    assert not lab.run(lab.key(run, "Y-1"))


def test_an_exception_undoes_everything_and_tells_its_type_and_text(lab: Lab) -> None:
    def work(context: Any) -> None:
        LabFlow.note.set(context, "written")
        Group.objects.create(name="from the RPC")
        raise KeyError("no such\x00thing")

    lab.define()
    run = lab.start()
    lab.flow.on_call = work
    error = failure(lab, lab.flow.call)
    assert (error.error_type, error.error_detail) == ("KeyError", "'no such\\x00thing'")
    assert not Group.objects.exists()
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    assert value("SELECT count(*) FROM dexflows_event WHERE run_id = %s", run) == 1
    assert lab.bell.names() == []


def test_an_exception_that_cannot_tell_its_text_is_reported_all_the_same(lab: Lab) -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("nothing to say")

    def work(context: Any) -> None:
        raise SpeechlessError

    lab.define()
    lab.start()
    lab.flow.on_call = work
    assert failure(lab, lab.flow.call).error_type == "SpeechlessError"


@pytest.mark.parametrize("also_writes", [False, True])
@pytest.mark.parametrize("through_orm", [False, True])
def test_a_handler_that_swallows_a_database_error_is_refused_not_acknowledged_and_lost(
    lab: Lab, also_writes: bool, through_orm: bool
) -> None:
    def work(context: Any) -> None:
        Group.objects.create(name="one")
        try:
            if through_orm:
                Group.objects.create(name="one")
            else:
                rows("INSERT INTO auth_group (name) VALUES ('one')")
        except IntegrityError:
            pass
        if also_writes:
            LabFlow.note.set(context, "written")

    lab.define()
    lab.start()
    lab.flow.on_call = work
    failure(lab, lab.flow.call)
    assert not Group.objects.exists()
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_a_handler_that_undoes_its_own_savepoint_goes_on(lab: Lab) -> None:
    def work(context: Any) -> None:
        Group.objects.create(name="one")
        with pytest.raises(IntegrityError), transaction.atomic():
            Group.objects.create(name="one")
        LabFlow.note.set(context, "written")

    lab.define()
    lab.start()
    lab.flow.on_call = work
    assert lab.client.invoke_rpc(lab.flow.call, "flow") == "done"
    assert (Group.objects.count(), lab.client.get_attribute("flow", LabFlow.note)) == (1, "written")


def test_a_deferred_constraint_that_fails_at_the_commit_undoes_everything(lab: Lab) -> None:
    def work(context: Any) -> None:
        LabFlow.note.set(context, "written")
        group = Group.objects.create(name="one")
        Group.permissions.through.objects.create(group_id=group.pk, permission_id=999_999_999)

    lab.define()
    lab.start()
    lab.flow.on_call = work
    assert failure(lab, lab.flow.call).error_type == "IntegrityError"
    assert not Group.objects.exists()
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_an_rpc_runs_whether_or_not_a_step_is_active(lab: Lab) -> None:
    standing = Pause()
    y = LabStep("Y", lambda context, input: (standing.here(), dead_end())[1])
    lab.define(y, start=False)
    lab.start()
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    running = in_thread(lab.run, lab.create(y)[0])
    with standing.reached():
        assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 2
    result(running)
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 3


def test_own_writes_are_visible_in_the_handler_and_steps_started_by_an_rpc_see_them(lab: Lab) -> None:
    seen: list[Any] = []
    y = LabStep("Y", lambda context, input: (seen.append(LabFlow.note.get(context)), dead_end())[1])

    def work(context: Any) -> RPCResult[str]:
        LabFlow.note.set(context, "mine")
        seen.append(LabFlow.note.get(context))
        return RPCResult("ok", next_steps=(StepMovement.of(y, ""),))

    lab.define(y, start=False)
    lab.start()
    lab.flow.on_call = work
    lab.client.invoke_rpc(lab.flow.call, "flow")
    lab.run_all()
    assert seen == ["mine", "mine"]


def test_on_a_closed_run_reading_works_and_writing_locking_and_starting_steps_are_refused(lab: Lab) -> None:
    y = LabStep("Y", lambda context, input: force_complete("over"))
    lab.define(y, start=False)
    run = lab.start()
    lab.client.invoke_rpc(lab.flow.bump, "flow")
    lab.run(lab.create(y)[0])
    assert lab.client.invoke_rpc(lab.flow.read, "flow") == 1
    assert lab.client.invoke_rpc(lab.flow.read, "flow", run_id=str(run)) == 1
    for method, *arguments in ((lab.flow.bump,), (lab.flow.put, "late"), (lab.flow.call_on_a,)):
        with pytest.raises(FlowNotActiveOrNotFoundError):
            lab.client.invoke_rpc(method, "flow", *arguments)
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.create(y)
    assert steps(run) == {"Y-1": "COMPLETED"}


def test_a_missing_flow_and_a_flow_of_another_type_are_not_found(lab: Lab) -> None:
    class OtherFlow(LabFlow):
        pass

    lab.define()
    other = registry.register(OtherFlow())
    lab.start()
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.invoke_rpc(lab.flow.read, "missing")
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.invoke_rpc(other.read, "flow")
    with pytest.raises(FlowNotActiveOrNotFoundError):
        lab.client.invoke_rpc(lab.flow.read, "flow", run_id="01890000-0000-7000-8000-000000000000")


def test_a_call_without_a_run_id_acts_on_the_latest_run(lab: Lab) -> None:
    from dexflows import IdReusePolicy, StartFlowOptions

    lab.define()
    first = lab.start()
    lab.client.invoke_rpc(lab.flow.bump, "flow")
    lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING))
    assert lab.client.invoke_rpc(lab.flow.read, "flow") == 0
    assert lab.client.invoke_rpc(lab.flow.read, "flow", run_id=str(first)) == 1


@pytest.mark.parametrize("answer", [RPCResult(5), "text", object()])
def test_an_answer_that_does_not_fit_its_declared_type_is_an_error_and_changes_nothing(lab: Lab, answer: Any) -> None:
    def work(context: Any) -> Any:
        LabFlow.note.set(context, "written")
        return answer if isinstance(answer, RPCResult) else RPCResult(answer)

    lab.define()
    lab.start()
    lab.flow.on_call = work
    if answer == "text":
        assert lab.client.invoke_rpc(lab.flow.call, "flow") == "text"
        return
    assert failure(lab, lab.flow.call).error_type == "ValueMappingError"
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_an_input_of_the_wrong_type_or_size_is_refused_before_the_call(lab: Lab, settings: Any) -> None:
    lab.define()
    lab.start()
    with pytest.raises(ValueMappingError):
        lab.client.invoke_rpc(lab.flow.put, "flow", 5)
    with pytest.raises(InvalidRequestError):
        lab.client.invoke_rpc(lab.flow.read, "flow", "unwanted")
    settings.DEXFLOWS = {"MAX_VALUE_BYTES": 100}
    with pytest.raises(ValueTooLargeError):
        lab.client.invoke_rpc(lab.flow.put, "flow", "x" * 200)


def test_a_lock_or_load_of_a_definition_outside_the_schema_is_refused(lab: Lab) -> None:
    stranger = AttributeMap("m", int)
    lab.define()
    lab.start()
    for options in (
        RPCInvokeOptions(lock_attribute_map_instances=(stranger.lock("x"),)),
        RPCInvokeOptions(load_attribute_map_instances=(stranger.load("x"),)),
        RPCInvokeOptions(lock_attribute_map_instances=(Attribute("zzz", str).lock(),)),
    ):
        with pytest.raises(InvalidRequestError):
            lab.client.invoke_rpc(lab.flow.read, "flow", options=options)


def test_map_instances_are_readable_only_when_loaded_and_locking_does_not_load(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.client.set_attribute("flow", LabFlow.m, "x", 4)
    lab.flow.on_call = lambda context: str(LabFlow.m.get(context, "x"))
    assert failure(lab, lab.flow.call).error_type == "AttributeMapNotLoadedError"
    locked = RPCInvokeOptions(lock_attribute_map_instances=(LabFlow.m.lock("x"),))
    with pytest.raises(WorkerInvocationError, match="not loaded"):
        lab.client.invoke_rpc(lab.flow.call, "flow", options=locked)
    loaded = RPCInvokeOptions(load_attribute_map_instances=(LabFlow.m.load("x"), LabFlow.m.load("absent")))
    assert lab.client.invoke_rpc(lab.flow.call, "flow", options=loaded) == "4"
    lab.flow.on_call = lambda context: f"{LabFlow.m.get_all_instance_keys(context)}"
    assert lab.client.invoke_rpc(lab.flow.call_on_all_of_m, "flow") == "['x']"


def test_inside_a_callers_transaction_an_rpc_is_part_of_it(lab: Lab) -> None:
    lab.define(LabStep("Y"), start=False)
    lab.start()
    with transaction.atomic():
        lab.client.invoke_rpc(lab.flow.put, "flow", "one")
        lab.flow.on_call = lambda context: RPCResult("ok", next_steps=(StepMovement.of(lab.flow.steps[0], ""),))
        lab.client.invoke_rpc(lab.flow.call, "flow")
        assert lab.bell.names() == []
        transaction.set_rollback(True)
    assert (lab.client.get_attribute("flow", LabFlow.note), lab.bell.names()) == (None, [])
    with transaction.atomic():
        lab.client.invoke_rpc(lab.flow.put, "flow", "two")
        lab.client.invoke_rpc(lab.flow.call, "flow")
    assert (lab.client.get_attribute("flow", LabFlow.note), lab.bell.names()) == ("two", ["Y-1"])


def test_a_failed_rpc_leaves_the_callers_transaction_usable_and_gives_its_locks_back(lab: Lab) -> None:
    lab.define()
    lab.start()

    def boom(context: Any) -> None:
        raise RuntimeError("boom")

    with transaction.atomic():
        Group.objects.create(name="kept")
        lab.flow.on_call = boom
        failure(lab, lab.flow.call_on_c)
        assert result(in_thread(lab.client.invoke_rpc, lab.flow.bump, "flow")) == 1
        calling = Calling(lab, lab.flow.call_on_c)
        with pytest.raises(RpcLockConflictError):
            lab.client.invoke_rpc(lab.flow.bump, "flow")
        calling.end()
    assert Group.objects.filter(name="kept").exists()


def test_an_rpc_may_call_the_client_inside_its_own_transaction(lab: Lab) -> None:
    lab.define(LabStep("Y"), start=False)
    lab.start()

    def work(context: Any) -> None:
        lab.client.start_flow(lab.flow, "child", "")
        assert lab.client.invoke_rpc(lab.flow.bump, "child") == 1
        raise RuntimeError("undo")

    lab.flow.on_call = work
    failure(lab, lab.flow.call)
    assert value("SELECT count(*) FROM dexflows_run WHERE flow_id = 'child'") == 0
    assert not connection.in_atomic_block


def test_what_the_database_says_leaves_without_its_sql_and_rows(lab: Lab) -> None:
    def call(context: Any) -> Any:
        Group.objects.create(name="secret")
        Group.objects.create(name="secret")

    lab.define(start=False)
    lab.start()
    lab.flow.on_call = call
    with pytest.raises(WorkerInvocationError) as caught:
        lab.client.invoke_rpc(lab.flow.call, "flow")
    assert caught.value.error_type == "IntegrityError"
    assert caught.value.error_detail.startswith("duplicate key value violates unique constraint")
    assert "secret" not in caught.value.error_detail


def test_an_event_may_have_a_long_name(lab: Lab) -> None:
    lab.define(start=False)
    run_id = lab.start()
    lab.flow.on_call = lambda context: context.record_event("\N{SNOWMAN}" * 255, {"a": 1})
    lab.client.invoke_rpc(lab.flow.call, "flow")
    kinds = "SELECT kind FROM dexflows_event WHERE run_id = %s ORDER BY seq"
    assert rows(kinds, run_id)[-1] == ("\N{SNOWMAN}" * 255,)


@pytest.mark.parametrize("nonsense", ["m", LabFlow.m, AttributeLock(LabFlow.m), AttributeLock(Attribute("c", int))])
def test_a_call_that_locks_or_loads_nonsense_is_refused(lab: Lab, nonsense: Any) -> None:
    lab.define(start=False)
    lab.start()
    for option in ("lock_attribute_map_instances", "load_attribute_map_instances"):
        with pytest.raises(InvalidRequestError):
            lab.client.invoke_rpc(lab.flow.read, "flow", options=RPCInvokeOptions(**{option: (nonsense,)}))
