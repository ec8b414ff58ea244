"""Heartbeats of long handlers: a value for the next attempt, a deadline that moves, and news of the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from dexflows import (
    InvalidRequestError,
    RetryPolicy,
    StepDecision,
    StopFlowOptions,
    Timer,
    Wait,
    dead_end,
    force_complete,
    go_to,
    graceful_complete,
)
from dexflows.engine import rescue, transitions
from dexflows.engine.leases import Holding, InlineWorker
from tests.engine.kit import Lab, Pause, end_lease, in_thread, make_due, result, rows, step, value, wait_until
from tests.engine.test_round_trips import trips
from tests.flows_lab import AsyncLabStep, LabFlow, LabStep, WaitingLabStep

AT_ONCE = RetryPolicy(initial_interval=0)
DEADLINE = "extract(epoch FROM method_deadline - started_at)::float8"


def pause(seconds: float) -> None:
    """Let time pass in a handler."""
    threading.Event().wait(seconds)


def run_again(lab: Lab, run: Any) -> None:
    for key in make_due(run):
        lab.run(key)


@pytest.mark.parametrize("atomic", [False, True])
def test_a_heartbeat_is_stored_at_once_and_read_by_the_next_attempt(lab: Lab, atomic: bool) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        seen.append(context.get_last_heartbeat(dict[str, int]))
        if context.attempt == 1:
            assert context.heartbeat({"row": 7})
            assert context.get_last_heartbeat(dict[str, int]) == {"row": 7}
            stored = in_thread(value, "SELECT heartbeat ->> 'row' FROM dexflows_step_execution")
            assert result(stored) == "7", "others see it while the handler runs"
            raise RuntimeError("boom")
        return dead_end()

    lab.define(LabStep("Y", work, execute_retry=AT_ONCE, execute_atomic=atomic))
    run = lab.start()
    lab.run_all()
    run_again(lab, run)
    assert seen == [None, {"row": 7}]
    assert (step(run, "Y-1"), step(run, "Y-1", "heartbeat")) == ("COMPLETED", None)


def test_a_heartbeat_survives_the_death_of_its_worker_and_ends_with_its_method(lab: Lab) -> None:
    seen: list[Any] = []

    def note(context: Any, input: str) -> Any:
        seen.append((context.attempt, context.get_last_heartbeat(int)))
        context.heartbeat(5)
        return dead_end()

    lab.define(WaitingLabStep("Y", note, wait=lambda context, input: note(context, input) and None))
    run = lab.start()
    plan = '{"wait_for": {"timeout": 60, "load": null}}'
    token = transitions.claim(lab.key(run, "Y-1"), "gone", plan).token
    assert value("SELECT dexflows_heartbeat(%s, 'Y', 1, %s, '3', 60, NULL)", run, token)
    end_lease(run, "Y-1")
    rescue.rescue_expired(10)
    run_again(lab, run)
    lab.run_all()
    assert seen == [(2, 3), (1, None)]


def test_a_heartbeat_is_one_round_trip(lab: Lab) -> None:
    taken: list[int] = []

    def work(context: Any, input: str) -> Any:
        taken.append(trips(lambda: context.heartbeat(1)))
        return dead_end()

    lab.define(LabStep("Y", work, heartbeat_timeout=60))
    lab.start()
    lab.run_all()
    assert taken == [1]


def test_a_heartbeat_within_an_open_transaction_is_not_part_of_it(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        with transaction.atomic():
            assert context.heartbeat(1)
            assert result(in_thread(value, "SELECT heartbeat FROM dexflows_step_execution")) == "1"
            assert result(in_thread(rows, "SELECT 1 FROM dexflows_step_execution FOR UPDATE NOWAIT")) == [(1,)]
        return dead_end()

    lab.define(LabStep("Y", work))
    run = lab.start()
    lab.run_all()
    assert step(run, "Y-1") == "COMPLETED"


def test_the_connection_of_an_atomic_steps_heartbeats_is_one_and_ends_with_the_attempt(lab: Lab) -> None:
    counts: list[int] = []

    def sessions() -> int:
        rows("SELECT pg_stat_clear_snapshot()")
        return int(value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"))

    def work(context: Any, input: str) -> Any:
        context.heartbeat(1)
        context.heartbeat(2)
        counts.append(sessions())
        return dead_end()

    lab.define(LabStep("Y", work, execute_atomic=True))
    lab.start()
    before = sessions()
    lab.run_all()
    assert counts == [before + 1]
    wait_until(lambda: sessions() == before, "the connection of the heartbeats is still there")


def test_a_heartbeat_that_its_own_transaction_keeps_out_gives_up_soon(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        rows("SELECT FROM dexflows_step_execution FOR UPDATE")
        assert not context.heartbeat(1)
        assert not context.is_cancellation_requested()
        return dead_end()

    lab.define(LabStep("Y", work, execute_atomic=True))
    run = lab.start()
    lab.run_all()
    assert step(run, "Y-1") == "COMPLETED"


def test_an_rpc_has_no_heartbeat(lab: Lab) -> None:
    lab.define()
    lab.start()

    def beat(context: Any) -> Any:
        with pytest.raises(InvalidRequestError, match="only a Step"):
            context.heartbeat(1)

    lab.flow.on_call = beat
    lab.client.invoke_rpc(lab.flow.call, "flow")


def test_a_heartbeat_moves_the_deadline_but_never_past_the_method_timeout(lab: Lab) -> None:
    deadlines: list[float] = []

    def work(context: Any, input: str) -> Any:
        deadlines.append(step_deadline())
        context.heartbeat()
        deadlines.append(step_deadline())
        rows("UPDATE dexflows_step_execution SET started_at = started_at - interval '95 s'")
        context.heartbeat()
        deadlines.append(step_deadline())
        return dead_end()

    def step_deadline() -> float:
        return float(value(f"SELECT {DEADLINE} FROM dexflows_step_execution"))

    lab.define(LabStep("Y", work, heartbeat_timeout=10, execute_method_timeout=100))
    lab.start()
    lab.run_all()
    assert deadlines[0] == 10
    assert 10 < deadlines[1] < 20
    assert deadlines[2] == 100


@pytest.mark.parametrize("first", ["Begin", "Y"])
def test_the_deadline_of_a_step_that_runs_in_place_is_that_of_its_heartbeat(lab: Lab, first: str) -> None:
    seen: list[Any] = []

    def work(context: Any, input: str) -> Any:
        seen.append(float(value(f"SELECT {DEADLINE} FROM dexflows_step_execution WHERE step_type = 'Y'")))
        return dead_end()

    y = WaitingLabStep("Y", work, wait=lambda context, input: work(context, input) and None, heartbeat_timeout=10)
    begin = LabStep("Begin", lambda context, input: go_to(y, ""))
    lab.define(*((begin, y) if first == "Begin" else (y, begin)))
    lab.start()
    lab.run_all()
    assert seen == [10, 10]


def silent(context: Any, input: str) -> StepDecision:
    pause(0.1)
    context.heartbeat()
    pause(5)
    return dead_end()


def test_a_handler_that_falls_silent_is_interrupted(lab: Lab) -> None:
    lab.define(LabStep("Y", silent, heartbeat_timeout=0.3))
    run = lab.start()
    started = time.monotonic()
    lab.run_all()
    assert time.monotonic() - started < 3
    assert step(run, "Y-1") == "BACKOFF"
    assert step(run, "Y-1", "failure ->> 'error_type'") == "HeartbeatTimeoutError"


def test_a_handler_with_heartbeats_is_interrupted_at_its_method_timeout(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        while True:
            context.heartbeat()

    lab.define(LabStep("Y", work, heartbeat_timeout=0.2, execute_method_timeout=0.5))
    run = lab.start()
    lab.run_all()
    assert step(run, "Y-1", "failure ->> 'error_type'") == "MethodTimeoutError"


@pytest.mark.parametrize("threaded", [False, True])
def test_heartbeats_keep_a_handler_going_longer_than_one_of_their_intervals(lab: Lab, threaded: bool) -> None:
    def work(context: Any, input: str) -> Any:
        for _ in range(8):
            pause(0.1)
            assert context.heartbeat()
        return graceful_complete("done")

    lab.define(LabStep("Y", work, heartbeat_timeout=0.4))
    lab.start()
    (key,) = lab.bell.take()
    result(in_thread(lab.run, key)) if threaded else lab.run(key)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "done"


def test_where_nothing_can_interrupt_a_late_heartbeat_is_refused_and_the_result_dropped(lab: Lab) -> None:
    answers: list[bool] = []

    def work(context: Any, input: str) -> Any:
        pause(0.3)
        answers.extend((context.heartbeat(), context.is_cancellation_requested()))
        return graceful_complete("late")

    lab.define(LabStep("Y", work, heartbeat_timeout=0.1))
    run = lab.start()
    result(in_thread(lab.run, lab.bell.take()[0]))
    assert answers == [False, True]
    assert step(run, "Y-1", "failure ->> 'error_type'") == "HeartbeatTimeoutError"


@pytest.mark.parametrize(("deadline", "failed"), [("10 s", "HeartbeatTimeoutError"), ("100 s", "MethodTimeoutError")])
def test_a_rescuer_tells_a_silent_handler_from_one_past_its_timeout(lab: Lab, deadline: str, failed: str) -> None:
    lab.define(LabStep("Y", heartbeat_timeout=10, execute_method_timeout=100))
    run = lab.start()
    transitions.claim(lab.key(run, "Y-1"), "gone", '{"execute": {"timeout": 100, "heartbeat": 10, "load": null}}')
    end_lease(run, "Y-1")
    rows(
        "UPDATE dexflows_step_execution SET started_at = started_at - interval '200 s',"
        " method_deadline = started_at - interval '200 s' + %s::interval",
        deadline,
    )
    assert rescue.rescue_expired(10) == 1
    assert step(run, "Y-1", "failure ->> 'error_type'") == failed


def cancel(lab: Lab, y: LabStep) -> None:
    lab.flow.on_call = lambda context: lab.cancel(y)
    lab.client.invoke_rpc(lab.flow.call, "flow")


def decide_to_cancel(lab: Lab, y: LabStep) -> None:
    decide(lab, lambda: dead_end().with_canceling_steps(y))


def stop(lab: Lab, y: LabStep) -> None:
    lab.client.stop_flow("flow", StopFlowOptions(reason="enough"))


def close(lab: Lab, y: LabStep) -> None:
    decide(lab, lambda: force_complete("done"))


def lose(lab: Lab, y: LabStep) -> None:
    end_lease(value("SELECT run_id FROM dexflows_run"), "Y-1")
    assert rescue.rescue_expired(10) == 1


def decide(lab: Lab, decision: Callable[[], StepDecision]) -> None:
    decider = next(each for each in lab.flow.steps if isinstance(each, LabStep) and each.name == "Decider")
    decider.handler = lambda context, input: decision()
    (key,) = lab.create(decider)
    lab.run(key)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("end", [cancel, decide_to_cancel, stop, close, lose])
def test_the_end_of_an_attempt_reaches_its_handler(lab: Lab, end: Callable[[Lab, LabStep], None], atomic: bool) -> None:
    standing = Pause()
    answers: list[bool] = []

    def ask(context: Any, input: str) -> Any:
        answers.extend((context.heartbeat(1), context.is_cancellation_requested()))
        standing.here()
        answers.extend((context.is_cancellation_requested(), context.heartbeat(2)))
        LabFlow.note.set(context, "dropped")
        return graceful_complete("late")

    y = LabStep("Y", ask, execute_atomic=atomic)
    lab.define(y, LabStep("Decider"))
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with standing.reached():
        end(lab, y)
    result(running)
    assert answers == [True, False, True, False]
    assert step(run, "Y-1", "heartbeat") in (1, "1")
    assert lab.client.get_attribute("flow", LabFlow.note) is None


def test_an_async_handler_beats_from_a_thread(lab: Lab) -> None:
    answers: list[bool] = []

    async def work(context: Any, input: str) -> StepDecision:
        answers.append(await sync_to_async(context.heartbeat)({"row": 1}))
        return graceful_complete("done")

    lab.define(AsyncLabStep("Y", work, heartbeat_timeout=5))
    lab.start()
    lab.run_all()
    assert answers == [True]


def test_a_settlement_has_no_deadline_once_the_handler_has_ended(lab: Lab) -> None:
    deadlines: list[float] = []

    class Watching(InlineWorker):
        def holding(self, key: Any, token: Any, timeout: float) -> Any:
            return nullcontext(Holding(deadlines.append))

    lab.worker = Watching()
    lab.define(LabStep("Y", lambda context, input: (context.heartbeat(), dead_end())[1], heartbeat_timeout=5))
    lab.start()
    lab.run_all()
    assert len(deadlines) == 3
    assert deadlines[0] <= deadlines[1] < time.monotonic() + 5
    assert deadlines[2] == float("inf")


@pytest.mark.parametrize(
    "wait",
    [None, Wait.until(Timer.by_duration(0)), Wait.until(LabFlow.ch.for_one())],
    ids=["skipped", "holds at once", "holds later"],
)
def test_no_attempt_of_execute_reads_a_heartbeat_of_wait_for(lab: Lab, wait: Wait | None) -> None:
    seen = []

    def beat(context: Any, input: str) -> Any:
        context.heartbeat("of wait_for")
        return wait

    def work(context: Any, input: str) -> Any:
        seen.append((context.attempt, context.get_last_heartbeat(str)))
        if context.attempt == 1:
            raise RuntimeError("boom")
        return dead_end()

    lab.define(WaitingLabStep("Y", work, beat, execute_retry=AT_ONCE))
    run = lab.start()
    lab.run_all()
    lab.client.publish("flow", LabFlow.ch, 1)
    lab.run_all()
    run_again(lab, run)
    assert seen == [(1, None), (2, None)]
