"""Claiming and settling: one attempt at a time, recorded before user code, fenced by its token and state."""

import threading
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from dexflows import RetryPolicy, dead_end, graceful_complete
from dexflows.engine import transitions
from dexflows.engine.keys import StepKey
from dexflows.registry import registry
from dexflows.states import StepState
from tests.engine.kit import DEADLINE, Lab, Pause, end_lease, in_thread, make_due, result, rows, step, steps, value
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep


def test_the_attempt_its_token_and_its_lease_are_committed_before_the_handler_runs(lab: Lab) -> None:
    standing = Pause()
    lab.define(LabStep("Y", lambda context, input: (standing.here(), dead_end())[1]))
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        assert step(run, "Y-1") == "RUNNING"
        assert (step(run, "Y-1", "attempt"), step(run, "Y-1", "worker")) == (1, "inline")
        assert step(run, "Y-1", "lease_until - clock_timestamp() BETWEEN interval '5 s' AND interval '15 s'")
        assert step(run, "Y-1", "token") is not None
    result(running)


def test_of_two_claimers_one_runs_the_handler(lab: Lab) -> None:
    ran: list[str] = []
    ready = threading.Barrier(4)
    lab.define(LabStep("Y", lambda context, input: (ran.append(context.step_execution_id), dead_end())[1]))
    lab.start()
    (key,) = lab.bell.take()

    def claim() -> bool:
        ready.wait(DEADLINE)
        return lab.run(key)

    assert sorted(result(each) for each in [in_thread(claim) for _ in range(4)]) == [False, False, False, True]
    assert ran == ["Y-1"]


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_late_result_of_a_superseded_attempt_is_refused(lab: Lab, ends: str) -> None:
    first, second = Pause(), Pause()

    def work(context: Any, input: str) -> Any:
        (first if context.attempt == 1 else second).here()
        LabFlow.c.set(context, context.attempt)
        if ends == "raises":
            raise RuntimeError(f"attempt {context.attempt}")
        return graceful_complete(f"attempt {context.attempt}")

    lab.define(LabStep("Y", work))
    run = lab.start()
    (key,) = lab.bell.take()
    early = in_thread(lab.run, key)
    with first.reached():
        end_lease(run, "Y-1")
        assert lab.rescue(run, "Y-1")
        assert step(run, "Y-1") == "BACKOFF"
        late = in_thread(lab.run, make_due(run)[0])
        second.wait()
    result(early)
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("RUNNING", 2)
    assert lab.client.get_attribute("flow", LabFlow.c) == 0
    second.release()
    result(late)
    if ends == "returns":
        assert lab.client.wait_for_flow("flow", 0).single_output(str) == "attempt 2"
        assert lab.client.get_attribute("flow", LabFlow.c) == 2
    else:
        assert step(run, "Y-1", "failure ->> 'detail'") == "attempt 2"


def test_a_settlement_needs_the_token_of_the_attempt_and_the_running_state(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    (key,) = lab.bell.take()
    done = {"state": StepState.COMPLETED, "writes": [("note", "", "intruder")]}
    assert not transitions.settle(key, uuid4(), done).landed
    row = transitions.claim(key, "inline", '{"execute": {"timeout": 60, "load": null}}')
    assert not transitions.settle(key, uuid4(), done).landed
    assert not transitions.settle(StepKey(run, "LabFlow", "Y", 2, "dexflows"), row.token, done).landed
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    assert transitions.settle(key, row.token, {"state": StepState.COMPLETED}).landed
    assert not transitions.settle(key, row.token, done).landed
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_a_rescue_lands_only_after_the_end_of_the_lease(lab: Lab) -> None:
    standing = Pause()
    lab.define(LabStep("Y", lambda context, input: (standing.here(), dead_end())[1]))
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        assert not lab.rescue(run, "Y-1")
        assert step(run, "Y-1") == "RUNNING"
    result(running)
    assert step(run, "Y-1") == "COMPLETED"


@pytest.mark.parametrize(
    "change",
    [
        "state = 'RUNNING'",
        "state = 'BACKOFF', due_at = NULL",
        "state = 'QUEUED', due_at = NULL",
        "state = 'COMPLETED', due_at = NULL",
        "state = 'CANCELED', closed_at = now()",
        "state = 'WAITING', closed_at = now(), due_at = NULL",
        "token = gen_random_uuid()",
        "lease_until = now()",
        "state = 'SLEEPING'",
        "method = 'think'",
        "attempt = -1",
        "number = -1",
    ],
)
def test_an_illegal_step_execution_cannot_exist(lab: Lab, change: str) -> None:
    lab.define(LabStep("Y"))
    lab.start()
    with pytest.raises(IntegrityError), transaction.atomic():
        rows(f"UPDATE dexflows_step_execution SET {change}")


@pytest.mark.parametrize("change", ["status = 'COMPLETED'", "closed_at = now()", "status = 'PAUSED'"])
def test_an_illegal_run_cannot_exist(lab: Lab, change: str) -> None:
    lab.define()
    lab.start()
    with pytest.raises(IntegrityError), transaction.atomic():
        rows(f"UPDATE dexflows_run SET {change}")


def test_a_second_running_run_of_one_flow_id_cannot_exist(lab: Lab) -> None:
    lab.define()
    lab.start()
    other = lab.start("other")
    with pytest.raises(IntegrityError), transaction.atomic():
        rows("UPDATE dexflows_run SET flow_id = 'flow', run_number = 2 WHERE run_id = %s", other)


def test_an_unknown_type_is_parked_without_attempt_or_failure_and_runs_when_it_is_known(lab: Lab) -> None:
    """BRK-11."""
    lab.define(LabStep("Y", lambda context, input: graceful_complete("known")))
    run = lab.start()
    (key,) = lab.bell.take()
    with registry.isolated():
        assert not lab.run(key)
        assert not lab.run(key)
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("QUEUED", 0)
    assert "LabFlow" in step(run, "Y-1", "parked_reason")
    assert make_due(run) == [], "a parked Step is not rung for workers that do not know it"
    assert rows('SELECT step_type FROM dexflows_sweep_parked(\'[["LabFlow", "Other"]]\', 10)') == []
    assert rows('SELECT step_type FROM dexflows_sweep_parked(\'[["LabFlow", "Y"]]\', 10)') == [("Y",)]
    assert lab.run(key)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "known"


def test_a_corrupt_stored_input_fails_visibly_and_alone(lab: Lab) -> None:
    """REC-08."""
    lab.define(LabStep("Y", lambda context, input: graceful_complete(input)))
    runs = [lab.start(f"flow-{number}", "fine") for number in range(5)]
    rows('UPDATE dexflows_step_execution SET input = \'{"no": "text"}\' WHERE run_id = %s', runs[2])
    lab.run_all()
    results = [lab.client.wait_for_flow(f"flow-{number}", 0) for number in range(5)]
    assert [each.status for each in results] == ["COMPLETED", "COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
    assert results[2].error_type == "WORKER_API_FAILED"
    assert "ValueMappingError" in (results[2].error_message or "")
    assert step(runs[2], "Y-1", "attempt") == 1


def test_stored_options_that_the_code_cannot_read_any_more_fail_visibly_and_not_for_ever(lab: Lab) -> None:
    """FLW-08: an Attribute that a movement's options name was removed."""
    from dexflows import StepMovement

    y = LabStep("Y", lambda context, input: dead_end())
    lab.define(y, start=False)
    run = lab.start()
    options = LabStep("Y", execute_load_attribute_maps=(LabFlow.m,)).options
    (key,) = lab.create(StepMovement.of(y, "", options))
    rows('UPDATE dexflows_step_execution SET options = \'{"execute_load_attribute_maps": ["removed"]}\'')
    lab.run(key)
    assert step(run, "Y-1") in ("FAILED", "BACKOFF")
    assert "removed" in step(run, "Y-1", "failure ->> 'detail'")


def test_locals_survive_from_wait_for_to_execute_and_over_attempts(lab: Lab) -> None:
    seen: list[Any] = []

    def wait(context: Any, input: str) -> None:
        context.set_step_execution_local("from wait", 1)

    def work(context: Any, input: str) -> Any:
        seen.append((context.get_step_execution_local("from wait", int), context.get_step_execution_local("x", str)))
        context.set_step_execution_local("x", "lost")
        if context.attempt == 1:
            raise RuntimeError("boom")
        return dead_end()

    lab.define(WaitingLabStep("Y", work, wait=wait, execute_retry=RetryPolicy(initial_interval=0)))
    run = lab.start()
    lab.run_all()
    lab.run(make_due(run)[0])
    assert seen == [(1, None), (1, None)], "what a failed attempt kept is not kept"


def test_recorded_events_are_kept_with_the_result_and_not_of_a_failed_attempt(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        context.record_event("PAID", {"attempt": context.attempt})
        if context.attempt == 1:
            raise RuntimeError("boom")
        return dead_end()

    lab.define(LabStep("Y", work, execute_retry=RetryPolicy(initial_interval=0)))
    run = lab.start()
    lab.run_all()
    lab.run(make_due(run)[0])
    assert rows("SELECT step, data ->> 'attempt' FROM dexflows_event WHERE kind = 'PAID'") == [("Y-1", "2")]
    assert value("SELECT count(*) FROM dexflows_event WHERE kind = 'STEP_ATTEMPT_FAILED'") == 1
    assert steps(run) == {"Y-1": "COMPLETED"}


@pytest.mark.parametrize("setting", ["default_transaction_read_only = on", "search_path = pg_catalog"])
def test_a_session_that_refuses_all_work_is_replaced(lab: Lab, setting: str) -> None:
    lab.define(LabStep("A", lambda context, input: graceful_complete(input)))
    run_id = lab.start()
    with connection.cursor() as cursor:
        cursor.execute(f"SET {setting}")
    lab.run_all()
    assert step(run_id, "A-1") == "COMPLETED"
