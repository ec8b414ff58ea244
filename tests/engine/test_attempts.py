"""How attempts end: retries and their limits, fresh state, and every kind of failure as an outcome."""

import asyncio
import time
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from dexflows import Attribute, RetryPolicy, WorkerInvocationError, dead_end, graceful_complete, retry_after
from dexflows.attribute import AttributeMap
from tests.engine.kit import Lab, end_lease, in_thread, make_due, result, rows, step, steps, value, wait_until
from tests.flows_lab import AsyncLabStep, LabFlow, LabStep, WaitingLabStep

AT_ONCE = RetryPolicy(initial_interval=0)
LOCK_C = (LabFlow.c.lock(),)


def raising(error: BaseException) -> Any:
    def work(context: Any, input: str) -> Any:
        LabFlow.note.set(context, "never kept")
        raise error

    return work


def failed_once(lab: Lab, y: LabStep) -> Any:
    """Start, run once, and return the run, whose Step has had one attempt."""
    lab.define(y)
    run = lab.start()
    lab.run_all()
    assert step(run, "Y-1", "attempt") == 1
    return run


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize(
    ("error", "error_type", "detail"),
    [
        (RuntimeError("boom"), "RuntimeError", "boom"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (GeneratorExit(), "GeneratorExit", ""),
        (RuntimeError("nul \x00 and \ud800"), "RuntimeError", "nul \\x00 and \\ud800"),
        (SpeechlessError(), "SpeechlessError", "its text cannot be read: RuntimeError"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whatever_a_handler_raises_is_an_outcome_that_frees_its_locks_and_keeps_nothing(
    lab: Lab, error: BaseException, error_type: str, detail: str
) -> None:
    """LCK-03."""
    run = failed_once(lab, LabStep("Y", raising(error), execute_lock_attributes=LOCK_C))
    assert step(run, "Y-1") == "BACKOFF"
    assert step(run, "Y-1", "failure ->> 'error_type'") == error_type
    assert step(run, "Y-1", "failure ->> 'detail'") == detail
    assert lab.client.get_attribute("flow", LabFlow.note) is None
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


def test_an_exception_text_of_any_size_is_kept_shortened(lab: Lab) -> None:
    run = failed_once(lab, LabStep("Y", raising(RuntimeError("x" * 5_000_000))))
    assert len(step(run, "Y-1", "failure ->> 'detail'")) < 9000


def test_a_handler_that_runs_past_its_timeout_is_interrupted_and_fails_with_its_locks_free(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        LabFlow.note.set(context, "never kept")
        try:
            rows("SELECT pg_sleep(60)") if input == "sql" else time.sleep(60)
        except Exception:  # noqa: BLE001 - a handler that swallows everything is still interrupted
            return graceful_complete("swallowed")

    y = LabStep("Y", work, execute_method_timeout=0.2, execute_lock_attributes=LOCK_C)
    lab.define(y)
    started = time.monotonic()
    for flow_id, input in (("python", "python"), ("sql", "sql")):
        run = lab.start(flow_id, input)
        lab.run_all()
        assert step(run, "Y-1") == "BACKOFF"
        assert step(run, "Y-1", "failure ->> 'error_type'") == "MethodTimeoutError"
        assert lab.client.invoke_rpc(lab.flow.bump, flow_id) == 1
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("in_transaction", [False, True])
def test_the_statement_of_an_interrupted_handler_ends_with_it(lab: Lab, in_transaction: bool) -> None:
    def work(context: Any, input: str) -> Any:
        with transaction.atomic() if in_transaction else nullcontext():
            rows("SELECT pg_sleep(60)")

    lab.define(LabStep("Y", work, execute_method_timeout=0.2))
    run = lab.start()
    lab.run_all()
    assert step(run, "Y-1", "failure ->> 'error_type'") == "MethodTimeoutError"
    sleeping = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep(60%%'"
    )
    wait_until(lambda: not rows(sleeping), "the statement still runs on the server")


def test_a_result_that_comes_after_the_timeout_is_dropped_where_nothing_can_interrupt(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        LabFlow.note.set(context, "never kept")
        rows("SELECT pg_sleep(0.3)")
        return graceful_complete("late")

    lab.define(LabStep("Y", work, execute_method_timeout=0.1))
    run = lab.start()
    result(in_thread(lab.run, lab.bell.take()[0]))
    assert step(run, "Y-1") == "BACKOFF"
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_an_async_handler_is_interrupted_too(lab: Lab) -> None:
    async def work(context: Any, input: str) -> Any:
        await asyncio.sleep(60)

    run = failed_once(lab, AsyncLabStep("Y", work, execute_method_timeout=0.2))
    assert step(run, "Y-1", "failure ->> 'error_type'") == "MethodTimeoutError"


@pytest.mark.parametrize(
    "decide",
    [
        lambda context: graceful_complete(object()),
        lambda context: graceful_complete(float("nan")),
        lambda context: graceful_complete("\x00"),
        lambda context: LabFlow.c.set(context, "text"),
        lambda context: LabFlow.m.set(context, "a/b", 1),
    ],
)
def test_a_value_that_cannot_be_stored_fails_the_run_without_a_retry(lab: Lab, decide: Any) -> None:
    """FLW-09, JSN-02."""
    run = failed_once(lab, LabStep("Y", lambda context, input: decide(context), execute_lock_attributes=LOCK_C))
    outcome = lab.client.wait_for_flow("flow", 0)
    assert (outcome.status, outcome.error_type) == ("FAILED", "WORKER_API_FAILED")
    assert "ValueMappingError" in (outcome.error_message or "")
    assert steps(run) == {"Y-1": "FAILED"}


def test_a_value_over_the_size_limit_fails_without_a_retry_and_names_key_size_and_limit(
    lab: Lab, settings: Any
) -> None:
    settings.DEXFLOWS = {"MAX_VALUE_BYTES": 1000}
    failed_once(lab, LabStep("Y", lambda c, i: (LabFlow.note.set(c, "x" * 2000), dead_end())[1]))
    message = lab.client.wait_for_flow("flow", 0).error_message or ""
    assert all(part in message for part in ("note", "2002", "1000"))


@pytest.mark.parametrize("answer", [None, "done", 5])
def test_a_handler_that_returns_no_decision_fails_its_attempt(lab: Lab, answer: Any) -> None:
    run = failed_once(lab, LabStep("Y", lambda context, input: answer))
    assert step(run, "Y-1", "failure ->> 'error_type'") == "InvalidStepResultError"


def test_undeclared_and_unloaded_attributes_fail_the_attempt(lab: Lab) -> None:
    stranger, strange_map = Attribute("note", str), AttributeMap("m", int)
    uses = {
        "UndeclaredAttributeError": [lambda c: stranger.get(c), lambda c: strange_map.set(c, "x", 1)],
        "AttributeMapNotLoadedError": [lambda c: LabFlow.m.get(c, "x"), lambda c: LabFlow.m.get_map_size(c)],
    }
    for expected, handlers in uses.items():
        for use in handlers:
            lab.flow.steps[0].handler = lambda c, i, use=use: use(c) if lab.flow.steps else None  # type: ignore[attr-defined]
            run = lab.start(f"flow {expected} {handlers.index(use)}")
            lab.run_all()
            assert step(run, "Y-1", "failure ->> 'error_type'") == expected


@pytest.fixture(autouse=True)
def one_step(lab: Lab, request: pytest.FixtureRequest) -> None:
    """For the tests that only swap the handler."""
    if "undeclared" in request.node.name:
        lab.define(LabStep("Y"))


def test_a_retry_reads_fresh_state_and_sees_nothing_of_the_failed_attempt(lab: Lab) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        seen.append((context.attempt, LabFlow.c.get(context), LabFlow.note.get(context)))
        LabFlow.note.set(context, f"attempt {context.attempt}")
        assert LabFlow.note.get(context) == f"attempt {context.attempt}", "own writes are visible"
        if context.attempt == 1:
            raise RuntimeError("boom")
        return dead_end()

    run = failed_once(lab, LabStep("Y", work, execute_retry=AT_ONCE))
    lab.client.set_attribute("flow", LabFlow.c, 42)
    lab.run(make_due(run)[0])
    assert seen == [(1, 0, None), (2, 42, None)]
    assert lab.client.get_attribute("flow", LabFlow.note) == "attempt 2"


def test_a_backoff_is_due_within_its_cap_and_not_before_it_runs_out(lab: Lab) -> None:
    run = failed_once(lab, LabStep("Y", raising(RuntimeError()), execute_retry=RetryPolicy(initial_interval=50)))
    assert step(run, "Y-1", "due_at - clock_timestamp() BETWEEN interval '-1 s' AND interval '50 s'")
    rows("UPDATE dexflows_step_execution SET due_at = now() + interval '40 s'")
    assert rows("SELECT * FROM dexflows_sweep_due(10)") == []
    assert not lab.run(lab.key(run, "Y-1")), "a ring does not cut a backoff short"
    assert [key.step_execution_id for key in make_due(run)] == ["Y-1"]


def test_retry_after_sets_the_next_interval_only_and_names_its_cause(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        raise retry_after(1000, LookupError("busy")) if context.attempt == 1 else RuntimeError("boom")

    run = failed_once(lab, LabStep("Y", work, execute_retry=RetryPolicy(initial_interval=1)))
    assert step(run, "Y-1", "due_at - clock_timestamp() BETWEEN interval '990 s' AND interval '1000 s'")
    assert step(run, "Y-1", "failure ->> 'error_type'") == "LookupError"
    lab.run(make_due(run)[0])
    assert step(run, "Y-1", "due_at - clock_timestamp() < interval '3 s'")


def test_after_the_last_attempt_the_run_fails_and_its_other_steps_are_canceled(lab: Lab) -> None:
    y = LabStep("Y", raising(RuntimeError("boom")), execute_retry=RetryPolicy(initial_interval=0, maximum_attempts=3))
    other = LabStep("Other")
    lab.define(y, other)
    run = lab.start()
    lab.create(other)
    lab.run(lab.key(run, "Y-1"))
    for _ in range(2):
        assert step(run, "Y-1") == "BACKOFF"
        make_due(run)
        lab.run(lab.key(run, "Y-1"))
    assert step(run, "Y-1", "attempt") == 3
    assert steps(run) == {"Y-1": "FAILED", "Other-1": "CANCELED"}
    outcome = lab.client.wait_for_flow("flow", 0)
    assert (outcome.status, outcome.error_type) == ("FAILED", "WORKER_API_FAILED")
    assert outcome.error_message == "RuntimeError: boom"


def test_attempts_that_died_with_their_worker_use_up_the_policy_before_user_code_starts_again(lab: Lab) -> None:
    """BRK-05, FLW-11: the attempt number and the remaining budget survive a crash."""
    calls: list[int] = []

    def work(context: Any, input: str) -> Any:
        calls.append(context.attempt)
        raise RuntimeError("boom")

    run = failed_once(lab, LabStep("Y", work, execute_retry=RetryPolicy(initial_interval=0, maximum_attempts=3)))
    for _ in range(2):
        make_due(run)
        rows(
            "SELECT outcome FROM dexflows_claim(%s, 'Y', 1, 'crashed', 15, %s, 'dexflows')",
            run,
            '{"execute": {"timeout": 60, "load": null}}',
        )
        end_lease(run, "Y-1")
        lab.rescue(run, "Y-1")
    make_due(run)
    lab.run(lab.key(run, "Y-1"))
    assert calls == [1], "no fresh attempts after the crashes"
    assert lab.client.wait_for_flow("flow", 0).status == "FAILED"
    assert lab.client.wait_for_flow("flow", 0).error_message == "WorkerLost: the lease ended"


def test_the_total_duration_ends_the_retries_too(lab: Lab) -> None:
    policy = RetryPolicy(initial_interval=0, total_duration=60)
    run = failed_once(lab, LabStep("Y", raising(RuntimeError("boom")), execute_retry=policy))
    assert step(run, "Y-1") == "BACKOFF"
    rows("UPDATE dexflows_step_execution SET first_attempt_at = first_attempt_at - interval '61 s'")
    lab.run(make_due(run)[0])
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("FAILED", 2)


def test_wait_for_and_execute_have_attempts_and_policies_of_their_own(lab: Lab) -> None:
    attempts: list[tuple[str, int]] = []

    def flaky(name: str) -> Any:
        def work(context: Any, input: str) -> Any:
            attempts.append((name, context.attempt))
            if context.attempt == 1:
                raise RuntimeError("once")
            return dead_end()

        return work

    y = WaitingLabStep("Y", flaky("execute"), wait=flaky("wait_for"), wait_for_retry=AT_ONCE, execute_retry=AT_ONCE)
    lab.define(y)
    run = lab.start()
    lab.run_all()
    for _ in range(2):
        lab.run(make_due(run)[0])
    assert attempts == [("wait_for", 1), ("wait_for", 2), ("execute", 1), ("execute", 2)]
    assert step(run, "Y-1") == "COMPLETED"


def test_the_context_tells_who_and_where_the_handler_is(lab: Lab) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        seen.append(context)
        return dead_end()

    lab.define(LabStep("Y", work))
    run = lab.start()
    lab.run_all()
    (context,) = seen
    assert (context.flow_id, context.run_id, context.step_execution_id) == ("flow", str(run), "Y-1")
    assert (context.from_step_execution_id, context.attempt, context.recovery_error) == (None, 1, None)
    assert isinstance(context.first_attempt_at, datetime)
    assert context.first_attempt_at.tzinfo is not None
    assert value("SELECT count(*) FROM dexflows_step_execution") == 1


def test_an_attempt_knows_by_the_clock_of_timers_when_it_began(lab: Lab) -> None:
    began: list[datetime] = []

    def fail(context: Any, input: str) -> Any:
        began.append(context.attempt_started_at)
        raise retry_after(60)

    lab.define(LabStep("Y", fail))
    run = lab.start()
    lab.run_all()
    rows("UPDATE dexflows_step_execution SET first_attempt_at = first_attempt_at - interval '61 s'")
    lab.run(make_due(run)[0])
    assert timedelta() <= began[1] - began[0] < timedelta(seconds=30)
    assert timedelta() <= value("SELECT dexflows_now()") - began[1] < timedelta(seconds=30)


def test_an_rpc_has_no_attempts(lab: Lab) -> None:
    flow = lab.define()
    lab.start()
    flow.on_call = lambda context: context.attempt_started_at
    with pytest.raises(WorkerInvocationError, match="only a Step's handler has attempts"):
        lab.client.invoke_rpc(flow.call, "flow")
