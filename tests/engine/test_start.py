"""Starting: the ID reuse matrix, all or nothing, once however many start at the same time."""

import threading
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from dexflows import FlowConfig, IdReusePolicy, StartFlowOptions
from dexflows.errors import FlowAlreadyStartedError, InvalidRequestError, ValueMappingError, ValueTooLargeError
from dexflows.options import StopFlowOptions
from dexflows.states import StopType
from tests.engine.kit import DEADLINE, Lab, in_thread, result, rows, steps, value
from tests.flows_lab import LabFlow, LabStep

LATEST = ("none", "RUNNING", "COMPLETED", "FAILED", "CANCELED", "TERMINATED")
STARTS = {
    IdReusePolicy.DEFAULT: {"none"},
    IdReusePolicy.DISALLOW: {"none"},
    IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED: {"none", "FAILED", "CANCELED", "TERMINATED"},
    IdReusePolicy.ALLOW_IF_NOT_RUNNING: {"none", "COMPLETED", "FAILED", "CANCELED", "TERMINATED"},
    IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING: set(LATEST),
}


def statuses(flow_id: str = "flow") -> list[str]:
    """The states of all runs of a Flow ID, oldest first."""
    return [
        status for (status,) in rows("SELECT status FROM dexflows_run WHERE flow_id = %s ORDER BY run_number", flow_id)
    ]


def bring_to(lab: Lab, status: str) -> UUID | None:
    if status == "none":
        return None
    run = lab.start()
    if status == "COMPLETED":
        rows("UPDATE dexflows_run SET status = 'COMPLETED', closed_at = now()")
    elif status != "RUNNING":
        stop = {"FAILED": StopType.FAIL, "CANCELED": StopType.CANCEL, "TERMINATED": StopType.TERMINATE}[status]
        lab.client.stop_flow("flow", StopFlowOptions(type=stop))
    return run


@pytest.mark.parametrize("latest", LATEST)
@pytest.mark.parametrize("policy", list(IdReusePolicy))
def test_the_reuse_policy_and_the_latest_run_decide_whether_a_start_makes_a_run(
    lab: Lab, policy: IdReusePolicy, latest: str
) -> None:
    lab.define(LabStep("Y"))
    earlier = bring_to(lab, latest)
    lab.bell.take()
    options = StartFlowOptions(id_reuse_policy=policy)
    before = [] if earlier is None else [latest]
    if latest in STARTS[policy]:
        run = lab.start(options=options)
        assert statuses() == [*(["TERMINATED"] if latest == "RUNNING" else before), "RUNNING"]
        assert steps(run) == {"Y-1": "QUEUED"}
        assert [(key.run_id, key.step_execution_id) for key in lab.bell.take()] == [(run, "Y-1")]
        assert lab.client.describe_flow("flow").run_id == str(run)
    else:
        with pytest.raises(FlowAlreadyStartedError) as refused:
            lab.start(options=options)
        assert refused.value.run_id == str(earlier)
        assert statuses() == before
        assert lab.bell.names() == []


def test_the_latest_run_decides_not_an_earlier_one(lab: Lab) -> None:
    lab.define()
    anew = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING)
    for stop in (StopType.FAIL, StopType.CANCEL):
        lab.start(options=anew)
        lab.client.stop_flow("flow", StopFlowOptions(type=stop))
    lab.start(options=anew)
    rows("UPDATE dexflows_run SET status = 'COMPLETED', closed_at = now() WHERE status = 'RUNNING'")
    with pytest.raises(FlowAlreadyStartedError):
        lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED))
    assert statuses() == ["FAILED", "CANCELED", "COMPLETED"]


@pytest.mark.parametrize(
    ("first", "second", "attaches"), [("r1", None, True), ("r1", "r1", True), ("r1", "r2", False), (None, "r2", False)]
)
def test_ignore_already_started_returns_the_run_unless_the_request_differs(
    lab: Lab, first: str | None, second: str | None, attaches: bool
) -> None:
    lab.define()
    run = lab.start(options=StartFlowOptions(request_id=first))
    again = StartFlowOptions(ignore_already_started=True, request_id=second)
    if attaches:
        assert lab.start(options=again) == run
    else:
        with pytest.raises(FlowAlreadyStartedError):
            lab.start(options=again)
    assert statuses() == ["RUNNING"]


def test_the_same_request_without_ignore_already_started_is_rejected(lab: Lab) -> None:
    lab.define()
    lab.start(options=StartFlowOptions(request_id="r"))
    with pytest.raises(FlowAlreadyStartedError):
        lab.start(options=StartFlowOptions(request_id="r"))


def race(lab: Lab, threads: int, each: int, options: StartFlowOptions) -> tuple[list[UUID], int]:
    """The runs that simultaneous starts returned, and how many were rejected."""
    ready = threading.Barrier(threads)

    def work() -> tuple[list[UUID], int]:
        ready.wait(DEADLINE)
        made, rejected = [], 0
        for _ in range(each):
            try:
                made.append(lab.start(options=options))
            except FlowAlreadyStartedError:
                rejected += 1
        return made, rejected

    answers = [result(future) for future in [in_thread(work) for _ in range(threads)]]
    return [run for made, _ in answers for run in made], sum(rejected for _, rejected in answers)


def test_fifty_simultaneous_starts_of_one_flow_id_make_one_run(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    made, rejected = race(lab, 10, 5, StartFlowOptions())
    assert (len(made), rejected, statuses()) == (1, 49, ["RUNNING"])
    assert steps(made[0]) == {"Y-1": "QUEUED"}
    assert lab.bell.names() == ["Y-1"]


def test_simultaneous_starts_that_replace_each_other_leave_one_running(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    made, rejected = race(lab, 5, 4, StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING))
    assert (len(set(made)), rejected) == (20, 0)
    assert statuses() == ["TERMINATED"] * 19 + ["RUNNING"]
    assert value("SELECT count(*) FROM dexflows_step_execution WHERE state = 'QUEUED'") == 1


def test_a_start_inside_a_transaction_that_is_rolled_back_never_existed(lab: Lab) -> None:
    """BRK-09, BRK-10."""
    lab.define(LabStep("Y"))
    with transaction.atomic():
        run = lab.start()
        assert steps(run) == {"Y-1": "QUEUED"}
        transaction.set_rollback(True)
    assert (statuses(), lab.bell.names()) == ([], [])
    assert value("SELECT count(*) FROM dexflows_step_execution") == 0
    assert value("SELECT count(*) FROM dexflows_event") == 0


def test_a_start_inside_a_transaction_is_rung_and_seen_after_the_commit_only(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    with transaction.atomic():
        Group.objects.create(name="order")
        run = lab.start()
        assert lab.bell.names() == []
        assert result(in_thread(rows, "SELECT 1 FROM dexflows_run")) == []
    assert [key.run_id for key in lab.bell.take()] == [run]
    assert Group.objects.exists()


def test_a_rejected_start_leaves_the_callers_transaction_usable(lab: Lab) -> None:
    lab.define()
    lab.start()
    with transaction.atomic():
        Group.objects.create(name="kept")
        with pytest.raises(FlowAlreadyStartedError):
            lab.start()
    assert Group.objects.filter(name="kept").exists()


def test_initial_attributes_are_there_with_the_run_and_the_last_one_for_a_place_wins(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    options = (
        StartFlowOptions()
        .with_attribute(LabFlow.note, "first")
        .with_attribute(LabFlow.note, "second")
        .with_attribute(LabFlow.m, "a/b".replace("/", "-"), 3)
    )
    lab.start(options=options)
    assert lab.client.get_attributes("flow", LabFlow.note, LabFlow.m.load("a-b"), LabFlow.c) == ["second", 3, 0]


def test_a_start_that_is_rejected_writes_no_attribute(lab: Lab) -> None:
    lab.define()
    lab.start()
    with pytest.raises(FlowAlreadyStartedError):
        lab.start(options=StartFlowOptions().with_attribute(LabFlow.note, "intruder"))
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_an_initial_attribute_outside_the_schema_or_of_the_wrong_type_is_refused(lab: Lab) -> None:
    from dexflows import Attribute

    lab.define()
    wrong: Any = 5
    with pytest.raises(InvalidRequestError):
        lab.start(options=StartFlowOptions().with_attribute(Attribute("note", str), "x"))
    with pytest.raises(ValueMappingError):
        lab.start(options=StartFlowOptions().with_attribute(LabFlow.note, wrong))
    assert statuses() == []


@pytest.mark.parametrize("bad", ["", "x" * 256, "a/b", "a\nb", "a\x00b", "a\x7fb", "\ud800", None, 5])
def test_a_flow_id_or_request_id_that_is_not_acceptable_is_refused(lab: Lab, bad: Any) -> None:
    lab.define()
    with pytest.raises(InvalidRequestError):
        lab.start(bad)
    if bad is not None:
        with pytest.raises(InvalidRequestError):
            lab.start(options=StartFlowOptions(request_id=bad))
    assert statuses() == []


@pytest.mark.parametrize("good", ["x", "x" * 255, "ü" * 255, "a b", "100%", "a'b\"c\\", "日本"])
def test_any_other_flow_id_up_to_255_characters_is_taken_as_it_is(lab: Lab, good: str) -> None:
    lab.define()
    lab.start(good)
    assert lab.client.describe_flow(good).flow_id == good


def test_an_input_of_the_wrong_type_or_over_the_size_limit_starts_nothing(lab: Lab, settings: Any) -> None:
    lab.define(LabStep("Y"))
    settings.DEXFLOWS = {"MAX_VALUE_BYTES": 100}
    wrong: Any = 5
    with pytest.raises(ValueMappingError):
        lab.start(input=wrong)
    with pytest.raises(ValueMappingError):
        lab.start(input="nul \x00")
    with pytest.raises(ValueTooLargeError):
        lab.start(input="x" * 99)
    with pytest.raises(ValueTooLargeError):
        lab.start(options=StartFlowOptions().with_attribute(LabFlow.note, "x" * 99))
    assert statuses() == []
    lab.start(input="x" * 98)
    assert statuses() == ["RUNNING"]


def test_the_worker_target_of_a_run_is_the_queue_of_its_steps(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start(options=StartFlowOptions(config_override=FlowConfig(worker_target="special")))
    assert [key.queue for key in lab.bell.take()] == ["special"]


def test_run_ids_are_version_seven_and_ordered_by_time(lab: Lab) -> None:
    lab.define()
    runs = [lab.start(f"flow-{number}") for number in range(20)]
    assert {run.version for run in runs} == {7}
    assert [run.bytes[:6] for run in runs] == sorted(run.bytes[:6] for run in runs)


@pytest.mark.parametrize(
    "config", [FlowConfig(retention=60), FlowConfig(history_limit=10), FlowConfig(attribute_store_names=())]
)
def test_a_setting_that_would_have_no_effect_is_refused(lab: Lab, config: FlowConfig) -> None:
    lab.define()
    with pytest.raises(InvalidRequestError, match="not available in this version"):
        lab.client.start_flow(lab.flow, "flow", "", StartFlowOptions(config_override=config))
