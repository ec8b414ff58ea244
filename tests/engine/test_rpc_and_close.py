"""An RPC that was acknowledged is part of the run it acted on, however close the run was to its end (FLW-04)."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from dexflows import force_complete
from dexflows.errors import FlowNotActiveOrNotFoundError
from dexflows.options import StopFlowOptions
from dexflows.states import StopType
from tests.engine.kit import DEADLINE, Lab, Pause, in_thread, result, value, wait_until_blocked
from tests.flows_lab import LabFlow, LabStep

CLOSERS = ("step", "stop", "replace")


def closing(lab: Lab, how: str) -> Any:
    """What closes the run."""
    if how == "step":
        (key,) = lab.create(lab.flow.steps[0])
        return lambda: lab.run(key)
    if how == "stop":
        return lambda: lab.client.stop_flow("flow", StopFlowOptions(type=StopType.TERMINATE))
    from dexflows import IdReusePolicy, StartFlowOptions

    options = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
    return lambda: lab.client.start_flow(lab.flow, "flow", "", options)


def late_call(lab: Lab, how: str, rpc: str) -> Any:
    """A call that reads a run which closes before it writes; closing does not wait for it."""
    lab.define(LabStep("Closer", lambda context, input: force_complete("over")), start=False)
    run = lab.start()
    close = closing(lab, how)
    standing = Pause()

    def write(context: Any) -> str:
        if context.run_id == str(run) and not closed.is_set():
            standing.here()
        Group.objects.create(name=f"of a late call to {context.run_id}")
        LabFlow.note.set(context, "late")
        return "done"

    closed = threading.Event()
    lab.flow.on_call = write
    calling = in_thread(lab.client.invoke_rpc, getattr(lab.flow, rpc), "flow")
    with standing.reached():
        close()
        closed.set()
        assert value("SELECT status FROM dexflows_run WHERE run_id = %s", run) != "RUNNING"
    return run, calling


@pytest.mark.parametrize("rpc", ["call", "call_on_c"])
@pytest.mark.parametrize("how", ["step", "stop"])
def test_a_call_holds_no_close_up_and_is_undone_if_the_run_closes_before_it_writes(
    lab: Lab, how: str, rpc: str
) -> None:
    run, calling = late_call(lab, how, rpc)
    with pytest.raises(FlowNotActiveOrNotFoundError):
        result(calling)
    assert lab.client.get_attribute("flow", LabFlow.note, run_id=str(run)) is None
    assert not Group.objects.exists()


@pytest.mark.parametrize("rpc", ["call", "call_on_c"])
def test_a_call_whose_run_is_replaced_before_it_writes_acts_on_the_new_run(lab: Lab, rpc: str) -> None:
    run, calling = late_call(lab, "replace", rpc)
    assert result(calling) == "done"
    assert lab.client.get_attribute("flow", LabFlow.note, run_id=str(run)) is None
    assert lab.client.get_attribute("flow", LabFlow.note) == "late"
    assert Group.objects.count() == 1


def test_a_call_that_waits_at_the_gate_while_the_run_is_replaced_acts_on_the_new_run(lab: Lab) -> None:
    from django.db import transaction

    lab.define()
    first = lab.start()
    close = closing(lab, "replace")
    with transaction.atomic():
        second = close()
        calling = in_thread(lab.client.invoke_rpc, lab.flow.put, "flow", "late")
        wait_until_blocked("dexflows_rpc_commit")
    result(calling)
    assert lab.client.get_attribute("flow", LabFlow.note, run_id=second) == "late"
    assert lab.client.get_attribute("flow", LabFlow.note, run_id=str(first)) is None
    assert not connection.in_atomic_block


def test_every_acknowledged_call_of_a_storm_is_in_the_final_state(lab: Lab) -> None:
    lab.define(LabStep("Closer", lambda context, input: force_complete("over")))
    flows = [f"flow-{number}" for number in range(12)]
    for flow_id in flows:
        lab.start(flow_id)
    keys = lab.bell.take()
    ready = threading.Barrier(4)
    acknowledged: list[tuple[str, str]] = []

    def call(caller: int) -> None:
        ready.wait(DEADLINE)
        for number in range(4):
            for flow_id in flows:
                instance = f"{caller}-{number}"
                try:
                    lab.client.set_attribute(flow_id, LabFlow.m, instance, number)
                    lab.client.invoke_rpc(lab.flow.put, flow_id, instance)
                    acknowledged.append((flow_id, instance))
                except FlowNotActiveOrNotFoundError:
                    continue

    def close() -> None:
        ready.wait(DEADLINE)
        for key in keys:
            lab.run(key)

    for each in [in_thread(call, caller) for caller in range(3)] + [in_thread(close)]:
        result(each)
    for flow_id, instance in acknowledged:
        assert lab.client.get_attribute(flow_id, LabFlow.m, instance) == int(instance[-1])
    for flow_id in flows:
        last = [instance for known, instance in acknowledged if known == flow_id]
        assert lab.client.describe_flow(flow_id).status == "COMPLETED"
        assert (lab.client.get_attribute(flow_id, LabFlow.note) in last) or not last
