"""A run that fails by itself is followed by another, as long as its retry policy says."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from dexflows import (
    FlowConfig,
    IdReusePolicy,
    RetryPolicy,
    StartFlowOptions,
    dead_end,
    force_fail,
    go_to_many,
    graceful_complete,
)
from dexflows.client import Client
from dexflows.decision import StepMovement
from dexflows.engine import closing
from dexflows.errors import FlowAlreadyStartedError, LongPollTimeoutError
from dexflows.states import FlowTimeoutPolicy, RunStatus
from tests.engine.kit import (
    DEADLINE,
    Lab,
    Pause,
    in_thread,
    make_due,
    result,
    rows,
    step,
    value,
    wait_until_blocked,
)
from tests.flows_lab import LabFlow, LabStep


def at_once(attempts: int = 0, **options: Any) -> StartFlowOptions:
    return StartFlowOptions(retry_policy=RetryPolicy(initial_interval=0, maximum_attempts=attempts), **options)


def runs(column: str = "status") -> list[Any]:
    return [each for (each,) in rows(f"SELECT {column} FROM dexflows_run ORDER BY run_number")]


def failing(lab: Lab, handler: Any = None) -> None:
    lab.define(LabStep("Y", handler or (lambda context, input: force_fail("no"))))


def fail_last_attempt(context: Any, input: str) -> Any:
    raise RuntimeError("boom")


@pytest.mark.parametrize("how", ["force", "attempt", "timeout"])
def test_a_run_that_fails_by_itself_is_followed_by_a_new_run_in_the_same_commit(lab: Lab, how: str) -> None:
    once = RetryPolicy(maximum_attempts=1)
    handler = fail_last_attempt if how == "attempt" else lambda context, input: force_fail("no")
    lab.define(LabStep("Y", handler, execute_retry=once))
    first = lab.start(input="in", options=at_once(2, timeout=100))
    (key,) = lab.bell.take()
    if how == "timeout":
        rows("UPDATE dexflows_run SET deadline = dexflows_now()")
        closing.time_out(10)
    else:
        lab.run(key)
    error = {"force": "FORCE_FAIL", "attempt": "WORKER_API_FAILED", "timeout": "FLOW_TIMEOUT"}[how]
    assert rows("SELECT status, error_type FROM dexflows_run ORDER BY run_number") == [
        ("FAILED", error),
        ("RUNNING", None),
    ]
    (again,) = lab.bell.take()
    assert again.run_id != first
    assert runs("retried_by") == [again.run_id, None]
    assert runs("run_number") == [1, 2]
    assert runs("input #>> '{}'") == ["in", "in"]
    data = (
        "SELECT data ->> 'run_id', (data -> 'attempt')::int, (data -> 'delay')::float FROM dexflows_event WHERE kind ="
    )
    assert rows(f"{data} 'FLOW_RETRIED' AND run_id = %s", first) == [(str(again.run_id), 2, 0.0)]
    lab.run(again)


@pytest.mark.parametrize("policy", [FlowTimeoutPolicy.CANCEL, None])
def test_a_run_that_ends_in_another_way_is_not_retried(lab: Lab, policy: FlowTimeoutPolicy | None) -> None:
    lab.define(LabStep("Y", lambda context, input: graceful_complete()))
    lab.start(options=at_once(timeout=100, timeout_policy=policy))
    if policy is None:
        lab.run_all()
    rows("UPDATE dexflows_run SET deadline = dexflows_now()")
    closing.time_out(10)
    assert runs() == ["CANCELED" if policy else "COMPLETED"]


def test_a_retry_starts_from_the_original_input_attributes_and_settings(lab: Lab) -> None:
    seen = []

    def work(context: Any, input: str) -> Any:
        seen.append((input, lab.flow.a.get(context), lab.flow.b.get(context), lab.flow.m.get(context, "x")))
        lab.flow.a.set(context, "changed")
        lab.flow.b.set(context, "new")
        lab.flow.m.set(context, "x", None)
        return go_to_many(StepMovement.of(lab.flow.steps[1], "other"))

    lab.define(
        LabStep("Y", work, execute_load_attribute_maps=(LabFlow.m,)),
        LabStep("Fail", lambda context, input: force_fail("no")),
    )
    config = FlowConfig(worker_target="special")
    options = at_once(2, config_override=config, request_id="request", start_delay=0.001)
    options = options.with_attribute(LabFlow.a, "first").with_attribute(LabFlow.m, "x", 1)
    lab.start(input="in", options=options)
    rows("UPDATE dexflows_step_execution SET due_at = dexflows_now()")
    lab.run_all()
    assert seen == [("in", "first", None, 1)] * 2
    assert runs() == ["FAILED", "FAILED"]
    assert runs("queue") == ["special", "special"]
    assert runs("request_id") == ["request", "request"]
    assert runs("config ->> 'worker_target'") == ["special", "special"]


def test_a_retry_waits_within_the_cap_and_has_its_whole_budget_after_that(lab: Lab) -> None:
    failing(lab)
    policy = RetryPolicy(initial_interval=1000, maximum_interval=1000)
    lab.start(options=StartFlowOptions(retry_policy=policy, timeout=100, start_delay=0))
    lab.run_all()
    second = runs("run_id")[1]
    assert lab.bell.take() == [], "it is not due yet"
    assert (step(second, "Y-1"), step(second, "Y-1", "attempt")) == ("BACKOFF", 0)
    waits = "SELECT extract(epoch FROM due_at - created_at) FROM dexflows_step_execution WHERE run_id = %s"
    wait = float(value(waits, second))
    assert 0 < wait <= 1000
    budget = value("SELECT extract(epoch FROM deadline - started_at) FROM dexflows_run WHERE run_id = %s", second)
    assert abs(float(budget) - wait - 100) < 0.001
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    (key,) = make_due(second)
    lab.run(key)
    assert runs() == ["FAILED", "FAILED", "RUNNING"]


def test_attempts_end(lab: Lab) -> None:
    failing(lab)
    lab.start(options=at_once(3))
    lab.run_all()
    assert runs() == ["FAILED"] * 3
    assert runs("retried_by")[2] is None
    assert runs("(retry -> 'attempt')::int") == [1, 2, 3]


def test_the_total_duration_counts_from_the_first_start(lab: Lab) -> None:
    failing(lab)
    policy = RetryPolicy(initial_interval=0, total_duration=100)
    first = lab.start(options=StartFlowOptions(retry_policy=policy))
    lab.run(lab.bell.take()[0])
    assert runs() == ["FAILED", "RUNNING"]
    began = "SELECT started_at FROM dexflows_run WHERE run_id = %s"
    assert value("SELECT (retry ->> 'first_started_at')::timestamptz FROM dexflows_run WHERE status = 'RUNNING'") == (
        value(began, first)
    )
    rows(
        "UPDATE dexflows_run SET retry = retry || jsonb_build_object('first_started_at', now() - interval '101 s') "
        "WHERE status = 'RUNNING'"
    )
    lab.run_all()
    assert runs() == ["FAILED", "FAILED"]


@pytest.mark.parametrize(
    ("policy", "attempt", "cap"),
    [
        (RetryPolicy(initial_interval=1, backoff_coefficient=10, maximum_interval=100), 1, 1),
        (RetryPolicy(initial_interval=1, backoff_coefficient=10, maximum_interval=100), 2, 10),
        (RetryPolicy(initial_interval=1, backoff_coefficient=10, maximum_interval=100), 400, 100),
        (RetryPolicy(initial_interval=1e-300, backoff_coefficient=1e9, maximum_interval=1e9), 2_000_000_000, 1e9),
        (RetryPolicy(initial_interval=5, backoff_coefficient=1, maximum_interval=100), 400, 5),
        (RetryPolicy(initial_interval=5, maximum_interval=3), 400, 3),
        (RetryPolicy(initial_interval=0, maximum_interval=0), 400, 0),
    ],
)
def test_the_wait_is_drawn_evenly_up_to_the_cap_which_never_overflows(
    lab: Lab, policy: RetryPolicy, attempt: int, cap: float
) -> None:
    failing(lab)
    lab.start(options=StartFlowOptions(retry_policy=policy))
    rows("UPDATE dexflows_run SET retry = jsonb_set(retry, '{attempt}', to_jsonb(%s))", attempt)
    rows("SELECT setseed(0.5)")
    draws = []
    for _ in range(30):
        with transaction.atomic():
            run = value("SELECT run_id FROM dexflows_run")
            rows("UPDATE dexflows_run SET status = 'FAILED', closed_at = now()")
            rows("SELECT dexflows_retry_run(%s, dexflows_now())", run)
            draws.append(value("SELECT (data -> 'delay')::float FROM dexflows_event WHERE kind = 'FLOW_RETRIED'"))
            transaction.set_rollback(True)
    assert policy.interval_cap(attempt) == pytest.approx(cap)
    assert all(0 <= draw <= cap for draw in draws)
    if cap:
        assert max(draws) > 0.7 * cap
        assert min(draws) < 0.3 * cap


def test_who_waits_for_a_flow_waits_for_its_last_run(lab: Lab) -> None:
    tries: list[str] = []

    def work(context: Any, input: str) -> Any:
        tries.append(context.run_id)
        return graceful_complete("at last") if len(tries) == 3 else force_fail("no")

    failing(lab, work)
    first = lab.start(options=at_once())
    (key,) = lab.bell.take()
    waiting = in_thread(Client().wait_for_flow, "flow", DEADLINE)
    lab.run(key)
    with pytest.raises(LongPollTimeoutError):
        lab.client.wait_for_flow("flow", 0)
    lab.run_all()
    assert result(waiting).single_output(str) == "at last"
    assert lab.client.wait_for_flow("flow", 0, run_id=str(first)).status is RunStatus.FAILED
    assert lab.client.describe_flow("flow").run_id == tries[2]


def test_a_retried_flow_is_running_to_whoever_starts_it(lab: Lab) -> None:
    failing(lab)
    lab.start(options=at_once(request_id="mine"))
    (key,) = lab.bell.take()
    lab.run(key)
    (again,) = lab.bell.take()
    same = StartFlowOptions(request_id="mine", ignore_already_started=True)
    assert lab.start(options=same) == again.run_id
    with pytest.raises(FlowAlreadyStartedError):
        lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED))


def test_a_start_that_replaces_a_run_just_as_it_fails_replaces_its_retry(lab: Lab) -> None:
    failing(lab)
    first = lab.start(options=at_once())
    (key,) = lab.bell.take()
    failed = Pause()

    def fail() -> None:
        with transaction.atomic():
            lab.run(key)
            failed.here()

    anew = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING)
    failing_now = in_thread(fail)
    with failed.reached():
        starting = in_thread(lambda: UUID(Client().start_flow(lab.flow, "flow", "", anew)))
        wait_until_blocked("dexflows_start")
    result(failing_now)
    third = result(starting)
    assert runs() == ["FAILED", "TERMINATED", "RUNNING"]
    assert (runs("run_id")[0], runs("run_id")[2]) == (first, third)
    assert runs("retried_by")[1:] == [None, None]


def test_the_steps_of_a_failed_run_do_not_come_back(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda context, input: force_fail("no")), LabStep("Z", lambda context, input: dead_end()))
    first = lab.start(options=at_once(2))
    (key,) = lab.bell.take()
    (other,) = lab.create(lab.flow.steps[1])
    lab.run(key)
    assert not lab.run(other)
    assert value("SELECT count(*) FROM dexflows_step_execution WHERE run_id <> %s", first) == 1
