"""The run that a Step waits for: started or attached to, and whom its close wakes."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import DatabaseError, transaction

from dexflows import IdReusePolicy, RetryPolicy, StartFlowOptions, force_fail, graceful_complete, selectors
from dexflows.engine.keys import step_keys
from dexflows.engine.starting import start_payload
from dexflows.errors import InvalidRequestError
from dexflows.options import StopFlowOptions
from dexflows.registry import registry
from dexflows.states import StopType, SubFlowReusePolicy
from tests.engine.kit import Lab, Pause, in_thread, result, rows, step, value, wait_until_blocked
from tests.flows_lab import LabStep

ATTACH, RESTART, ALWAYS = SubFlowReusePolicy
CHILD = "SubFlow:flow-Y-1-0"


def wait_for_sub_flow(
    lab: Lab,
    parent: UUID,
    reuse: SubFlowReusePolicy = RESTART,
    options: StartFlowOptions | None = None,
    *,
    condition: int = 0,
    pause: Pause | None = None,
) -> UUID:
    """Let the parent's Y-1 wait for a SubFlow, as a settlement does; rings for the child's start Step."""
    payload = start_payload(registry.definition_of(lab.flow), "", options or StartFlowOptions())
    with transaction.atomic():
        flow_id = value("SELECT flow_id FROM dexflows_run WHERE run_id = %s FOR NO KEY UPDATE", parent)
        rows(
            "UPDATE dexflows_step_execution SET state = 'WAITING', wait = '{}', due_at = NULL, token = NULL, "
            "lease_until = NULL WHERE run_id = %s AND step_type = 'Y'",
            parent,
        )
        ((child, rings),) = rows(
            "SELECT child_run_id, rings::text FROM dexflows_start_sub_flow(%s, %s, 'Y', 1, %s, %s, %s, dexflows_now())",
            parent,
            flow_id,
            condition,
            reuse,
            msgspec.json.encode(payload).decode(),
        )
        if pause is not None:
            pause.here()
    lab.bell.ring(step_keys(parent, rings))
    return UUID(str(child))


def define(lab: Lab, handler: Any = None) -> UUID:
    """Start a parent whose Step Y is about to wait; its SubFlows are runs of the same Flow."""
    lab.define(LabStep("Y", handler or (lambda context, input: graceful_complete("out"))))
    parent = lab.start()
    lab.bell.take()
    return parent


def wakes(lab: Lab, parent: UUID) -> bool:
    """Whether the parent's waiting Step was rung and is due, which it was not before."""
    rung = [key for key in lab.bell.take() if key.run_id == parent]
    due = value(
        "SELECT due_at <= dexflows_now() FROM dexflows_step_execution WHERE run_id = %s AND step_type = 'Y'", parent
    )
    assert (due is True) == bool(rung)
    return bool(rung)


def test_a_sub_flow_is_an_ordinary_run_that_knows_its_parent(lab: Lab) -> None:
    parent = define(lab)
    child = wait_for_sub_flow(lab, parent)
    told = lab.client.describe_flow(CHILD)
    assert (told.run_id, told.parent_flow_id) == (str(child), "flow")
    assert lab.client.describe_flow("flow").parent_flow_id is None
    (listed,) = selectors.children_of(selectors.find_run("flow"))
    assert (listed.step_execution_id, listed.condition, listed.child.run_id) == ("Y-1", 0, child)
    assert rows("SELECT parent_run_id FROM dexflows_run WHERE run_id = %s", child) == [(parent,)]
    assert rows("SELECT run_id, step_type, number, condition, child_run_id FROM dexflows_sub_flow") == [
        (parent, "Y", 1, 0, child)
    ]
    (key,) = lab.bell.take()
    assert (key.run_id, key.step_execution_id) == (child, "Y-1")
    lab.run(key)
    assert lab.client.wait_for_flow(CHILD, 0).single_output(str) == "out"
    assert step(parent, "Y-1") == "WAITING"
    assert wakes(lab, parent)


@pytest.mark.parametrize("stop_type", StopType)
def test_a_parent_is_woken_however_its_sub_flow_ends(lab: Lab, stop_type: StopType) -> None:
    parent = define(lab)
    wait_for_sub_flow(lab, parent)
    lab.bell.take()
    lab.client.stop_flow(CHILD, StopFlowOptions(type=stop_type))
    assert wakes(lab, parent)


def test_a_step_that_waits_no_more_is_left_alone(lab: Lab) -> None:
    parent = define(lab)
    wait_for_sub_flow(lab, parent)
    lab.bell.take()
    lab.client.stop_flow("flow")
    lab.client.stop_flow(CHILD)
    assert lab.bell.take() == []
    assert step(parent, "Y-1") == "CANCELED"


def test_the_end_of_the_parent_leaves_its_sub_flows_running(lab: Lab) -> None:
    parent = define(lab)
    wait_for_sub_flow(lab, parent)
    lab.client.stop_flow("flow")
    assert lab.client.describe_flow(CHILD).status == "RUNNING"


AGAIN = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING)


@pytest.mark.parametrize(
    ("reuse", "ended", "same"),
    [
        (ATTACH, None, True),
        (ATTACH, "complete", True),
        (ATTACH, StopType.FAIL, True),
        (ATTACH, StopType.CANCEL, True),
        (RESTART, None, True),
        (RESTART, "complete", True),
        (RESTART, StopType.FAIL, False),
        (RESTART, StopType.CANCEL, False),
        (RESTART, StopType.TERMINATE, False),
        (ALWAYS, None, False),
        (ALWAYS, "complete", False),
        (ALWAYS, StopType.FAIL, False),
    ],
)
def test_the_reuse_policy_decides_what_a_later_run_of_the_parent_waits_for(
    lab: Lab, reuse: SubFlowReusePolicy, ended: Any, same: bool
) -> None:
    parent = define(lab)
    first = wait_for_sub_flow(lab, parent)
    (key,) = lab.bell.take()
    if ended == "complete":
        lab.run(key)
    elif ended is not None:
        lab.client.stop_flow(CHILD, StopFlowOptions(type=ended))
    lab.client.stop_flow("flow")
    later = lab.start(options=AGAIN)
    lab.bell.take()
    second = wait_for_sub_flow(lab, later, reuse)
    assert (second == first) is same
    assert [key.run_id for key in lab.bell.take()] == ([] if same else [second])
    statuses = rows("SELECT status FROM dexflows_run WHERE flow_id = %s ORDER BY run_number", CHILD)
    if not same:
        assert statuses[1:] == [("RUNNING",)]
        assert statuses[0] != ("RUNNING",)
    assert value("SELECT child_run_id FROM dexflows_sub_flow WHERE run_id = %s", later) == second


def test_a_close_that_comes_while_a_step_attaches_finds_it_waiting(lab: Lab) -> None:
    parent = define(lab)
    lab.client.start_flow(lab.flow, CHILD, "")
    lab.bell.take()
    attached = Pause()
    attaching = in_thread(lambda: wait_for_sub_flow(lab, parent, pause=attached))
    with attached.reached():
        closing = in_thread(lab.client.stop_flow, CHILD)
        wait_until_blocked("dexflows_stop")
    result(attaching)
    result(closing)
    assert wakes(lab, parent)


def test_a_close_by_a_call_that_cancels_the_last_step_comes_after_the_attachment_too(lab: Lab) -> None:
    parent = define(lab)
    lab.client.start_flow(lab.flow, CHILD, "")
    (key,) = lab.bell.take()
    rows("UPDATE dexflows_step_execution SET output = '1' WHERE run_id = %s", key.run_id)
    attached = Pause()
    attaching = in_thread(lambda: wait_for_sub_flow(lab, parent, pause=attached))
    with attached.reached():
        lab.flow.on_call = lambda context: lab.cancel(lab.flow.steps[0])
        closing = in_thread(lab.client.invoke_rpc, lab.flow.call, CHILD)
        wait_until_blocked("dexflows_rpc_commit")
    result(attaching)
    result(closing)
    assert lab.client.describe_flow(CHILD).status == "COMPLETED"
    assert wakes(lab, parent)


def test_a_step_that_attaches_while_the_run_closes_finds_it_closed_and_starts_another(lab: Lab) -> None:
    parent = define(lab)
    lab.client.start_flow(lab.flow, CHILD, "")
    lab.bell.take()
    closed = Pause()

    def close() -> None:
        with transaction.atomic():
            lab.client.stop_flow(CHILD)
            closed.here()

    closing = in_thread(close)
    with closed.reached():
        attaching = in_thread(lambda: wait_for_sub_flow(lab, parent))
        wait_until_blocked("dexflows_start_sub_flow")
    result(closing)
    child = result(attaching)
    assert lab.client.describe_flow(CHILD).run_id == str(child)
    assert lab.client.describe_flow(CHILD).status == "RUNNING"


def test_a_step_that_attaches_while_the_run_fails_and_is_retried_waits_for_the_retry(lab: Lab) -> None:
    parent = define(lab, lambda context, input: force_fail("no"))
    policy = RetryPolicy(maximum_attempts=2, initial_interval=0)
    lab.client.start_flow(lab.flow, CHILD, "", StartFlowOptions(retry_policy=policy))
    (key,) = lab.bell.take()
    failed = Pause()

    def fail() -> None:
        with transaction.atomic():
            lab.run(key)
            failed.here()

    failing = in_thread(fail)
    with failed.reached():
        attaching = in_thread(lambda: wait_for_sub_flow(lab, parent, ATTACH))
        wait_until_blocked("dexflows_start_sub_flow")
    result(failing)
    child = result(attaching)
    assert lab.client.describe_flow(CHILD).run_id == str(child) != str(key.run_id)


def test_a_retried_sub_flow_wakes_its_parent_only_when_it_has_failed_for_good(lab: Lab) -> None:
    parent = define(lab, lambda context, input: force_fail("no"))
    options = StartFlowOptions(retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=0))
    first = wait_for_sub_flow(lab, parent, options=options)
    (key,) = lab.bell.take()
    lab.run(key)
    (retried,) = lab.bell.take()
    assert retried.run_id != first
    assert value("SELECT parent_run_id FROM dexflows_run WHERE run_id = %s", retried.run_id) == parent
    assert value("SELECT child_run_id FROM dexflows_sub_flow") == retried.run_id
    lab.run(retried)
    assert wakes(lab, parent)


def test_two_parents_of_one_run_are_both_woken(lab: Lab) -> None:
    """As when the Step of an earlier run of the parent waits still, or a caller took the SubFlow's ID."""
    parent = define(lab)
    child = wait_for_sub_flow(lab, parent)
    other = lab.start("other")
    lab.bell.take()
    wait_for_sub_flow(lab, other)
    rows("UPDATE dexflows_sub_flow SET child_run_id = %s WHERE run_id = %s", child, other)
    lab.bell.take()
    lab.client.stop_flow(CHILD)
    assert {key.run_id for key in lab.bell.take()} == {parent, other}


def test_a_flow_id_that_would_be_too_long_is_refused_with_advice(lab: Lab) -> None:
    parent = define(lab)
    for flow_id in ("SubFlow:" + "x" * 1010, "SubFlow:" + "\U0001f600" * 496):
        rows("UPDATE dexflows_run SET flow_id = %s WHERE run_id = %s", flow_id, parent)
        with pytest.raises(DatabaseError, match=r"more than the 1024 and 2000 that are allowed: give the parent a"):
            wait_for_sub_flow(lab, parent)


def test_callers_may_name_a_sub_flow_whose_id_is_longer_than_their_own_may_be(lab: Lab) -> None:
    lab.define()
    longest = "SubFlow:" + "x" * 1016
    lab.start(longest)
    assert lab.client.describe_flow(longest).flow_id == longest
    with pytest.raises(InvalidRequestError, match="1 to 1024 characters"):
        lab.start(longest + "x")
    with pytest.raises(InvalidRequestError, match="at most 2000 bytes"):
        lab.start("SubFlow:" + "\U0001f600" * 500)
