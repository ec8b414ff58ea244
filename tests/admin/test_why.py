"""Why a run is not moving: one test for each reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dexflows.models import Run
from dexflows.states import RunStatus, StepState
from dexflows.why import Reason, ReasonCode, why
from tests.admin.rows import ago, hold, make_busy_run, make_run, make_step, wait

pytestmark = pytest.mark.django_db


def reason_of(run: Run, step: str | None = None) -> Reason:
    (found,) = [reason for reason in why(run) if step is None or reason.step == step]
    return found


def test_a_queued_step_was_not_taken_by_a_worker() -> None:
    step = make_step(run := make_run(), "Ship", StepState.QUEUED, queue="slow")
    reason = reason_of(run)
    assert (reason.code, reason.step) == (ReasonCode.NOT_TAKEN, "Ship-1")
    assert "no worker has taken it from queue 'slow'" in reason.text
    assert reason.since == step.created_at


def test_a_parked_step_names_what_is_not_known() -> None:
    make_step(run := make_run(), "Ship", StepState.QUEUED, parked_reason="Step type Ship is not known")
    reason = reason_of(run)
    assert reason.code == ReasonCode.PARKED
    assert "Step type Ship is not known" in reason.text


def test_a_running_step_names_its_worker_and_attempt() -> None:
    step = make_step(run := make_run(), "Ship", StepState.RUNNING, worker="host-7", attempt=3)
    reason = reason_of(run)
    assert reason.code == ReasonCode.RUNNING
    assert "attempt 3 of execute by worker host-7" in reason.text
    assert reason.since == step.started_at


def test_a_step_whose_lease_has_ended_waits_for_its_rescue() -> None:
    step = make_step(run := make_run(), "Ship", StepState.RUNNING, lease_until=ago(3))
    reason = reason_of(run)
    assert reason.code == ReasonCode.WORKER_SILENT
    assert "no sign of life" in reason.text
    assert reason.since == step.lease_until


def test_a_step_that_backs_off_names_the_error_and_when_it_goes_on() -> None:
    failure = {"error_type": "shop.Busy", "detail": "come back later"}
    step = make_step(run := make_run(), "Ship", StepState.BACKOFF, failure=failure, attempt=2)
    reason = reason_of(run)
    assert reason.code == ReasonCode.BACKOFF
    assert "attempt 2 failed with shop.Busy: come back later" in reason.text
    assert reason.until == step.due_at


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({"key": "total"}, {"exclusive": ["total"]}),
        ({"key": "map/a", "map_key": "map/*"}, {"exclusive": ["map/*"]}),
        ({"key": "map/*"}, {"exclusive": ["map/a"], "shared": ("map/*",)}),
    ],
)
def test_a_waiter_names_the_lock_its_holder_and_its_place(held: dict[str, Any], wanted: dict[str, Any]) -> None:
    run = make_run()
    hold(make_step(run, "Charge", StepState.RUNNING), **held)
    for number in (1, 2):
        waiter = make_step(run, "Refund", StepState.WAITING_FOR_LOCK, number)
        wait(waiter, *wanted["exclusive"], shared=wanted.get("shared", ()))
    reason = reason_of(run, "Refund-2")
    assert reason.code == ReasonCode.LOCK_HELD
    assert f"waits for lock {held['key']}, held by Charge-1 since" in reason.text
    assert reason.text.endswith("place 2 in the queue")


def test_two_instances_of_a_map_are_not_in_each_others_way() -> None:
    run = make_run()
    hold(make_step(run, "Charge", StepState.RUNNING), "map/a", map_key="map/*")
    for number, key in ((1, "map/a"), (2, "map/b")):
        wait(make_step(run, "Refund", StepState.WAITING_FOR_LOCK, number), key, shared=("map/*",))
    assert reason_of(run, "Refund-1").code == ReasonCode.LOCK_HELD
    assert reason_of(run, "Refund-2").code == ReasonCode.LOCK_FREE


def test_a_waiter_behind_another_waits_its_turn() -> None:
    run = make_run()
    hold(make_step(run, "Charge", StepState.RUNNING), "a")
    wait(make_step(run, "Both", StepState.WAITING_FOR_LOCK), "a", "b")
    wait(make_step(run, "Last", StepState.WAITING_FOR_LOCK), "b")
    reason = reason_of(run, "Last-1")
    assert reason.code == ReasonCode.LOCK_QUEUE
    assert reason.text == "waits for b behind Both-1; place 2 in the queue"


def test_a_waiter_with_nothing_in_its_way_is_about_to_be_woken() -> None:
    run = make_run()
    row = wait(make_step(run, "Refund", StepState.WAITING_FOR_LOCK), "total")
    reason = reason_of(run)
    assert reason.code == ReasonCode.LOCK_FREE
    assert reason.since == row.waiting_since


def test_a_waiter_that_has_just_left_the_queue_says_so() -> None:
    make_step(run := make_run(), "Refund", StepState.WAITING_FOR_LOCK)
    assert "just leaving the lock queue" in reason_of(run).text


DUE = "2026-02-01T10:00:00+02:00"
TIMER, MESSAGE = {"due": DUE}, {"channel": ["approvals", ""], "min": 1, "max": 1}
MESSAGES, SUB_FLOW = {"channel": ["votes", "a b"], "min": 3, "max": None}, {"sub_flow": True, "flow_type": "Pay"}


@pytest.mark.parametrize(
    ("conditions", "choices", "code", "text"),
    [
        ([TIMER], [[0]], ReasonCode.TIMER, "waits for a timer at 2026-02-01 08:00:00 UTC"),
        ([MESSAGE], [[0]], ReasonCode.CONDITIONS, "waits for 1 message on Channel approvals"),
        (
            [MESSAGES, SUB_FLOW],
            [[0], [1]],
            ReasonCode.CONDITIONS,
            "waits for 3 messages on Channel votes/a%20b or a SubFlow of Pay",
        ),
        (
            [MESSAGE, TIMER],
            [[0, 1]],
            ReasonCode.CONDITIONS,
            "waits for 1 message on Channel approvals and a timer at 2026-02-01 08:00:00 UTC",
        ),
        (
            [MESSAGE, SUB_FLOW, TIMER],
            [[0, 1], [0, 2]],
            ReasonCode.CONDITIONS,
            "waits for a combination of 1 message on Channel approvals, a SubFlow of Pay, "
            "a timer at 2026-02-01 08:00:00 UTC",
        ),
        ([MESSAGE] * 12, [[0]] * 12, ReasonCode.CONDITIONS, "approvals and 2 more"),
    ],
)
def test_a_waiting_step_names_its_conditions(
    conditions: list[Any], choices: list[list[int]], code: ReasonCode, text: str
) -> None:
    stored = {"conditions": conditions, "choices": choices, "since": DUE}
    make_step(run := make_run(), "Approve", StepState.WAITING, method="wait_for", wait=stored, due_at=ago(-60))
    reason = reason_of(run)
    assert (reason.code, reason.since) == (code, datetime.fromisoformat(DUE))
    assert reason.text.endswith(text)
    assert reason.until is not None


def test_a_timer_that_nobody_took_says_so() -> None:
    stored = {"conditions": [TIMER], "choices": [[0]], "since": DUE}
    make_step(run := make_run(), "Remind", StepState.WAITING, method="wait_for", wait=stored, due_at=ago(1))
    assert reason_of(run).code == ReasonCode.TIMER_DUE


def test_a_run_without_an_open_step_is_open_for_rpcs() -> None:
    make_step(run := make_run(), "Ship", StepState.COMPLETED)
    reason = reason_of(run)
    assert (reason.code, reason.step) == (ReasonCode.NO_OPEN_STEP, None)


def test_a_closed_run_has_no_reason() -> None:
    assert why(make_run(status=RunStatus.COMPLETED)) == []


def test_the_reasons_are_bounded_and_cost_three_queries() -> None:
    run = make_busy_run(size=5)
    with CaptureQueriesContext(connection) as queries:
        assert len(why(run, limit=7)) == 7
    assert len(queries) == 3
