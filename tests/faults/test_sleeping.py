"""Flows that sleep: what they cost meanwhile, and that they wake once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from django.db import connection

from config.celery import app
from dexflows.client import Client
from tests.faults.conftest import SETTINGS, Broker, memory_of, query
from tests.faults.flows import sleep_flow
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

SLEEPERS = 100_000
DAY = 86_400.0
COPY_RUNS = """
INSERT INTO dexflows_run (run_id, flow_id, run_number, flow_type, status, queue, input, config, started_at)
SELECT dexflows_uuid7(now()), 'copy-' || i, 1, r.flow_type, r.status, r.queue, r.input, r.config, r.started_at
FROM dexflows_run r, generate_series(1, %s) AS i
"""
COPY_STEPS = """
INSERT INTO dexflows_step_execution (run_id, step_type, number, flow_type, queue, method, state, attempt, rings, due_at,
    input, wait, created_at, started_at)
SELECT r.run_id, s.step_type, s.number, s.flow_type, s.queue, s.method, s.state, s.attempt, s.rings,
    s.due_at + random() * interval '1 h', s.input, s.wait, s.created_at, s.started_at
FROM dexflows_step_execution s, dexflows_run r WHERE r.run_id <> s.run_id
"""
MINDED = """
SELECT s.run_id FROM dexflows_step_execution s
WHERE s.state IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') AND s.parked_reason IS NULL
    AND s.due_at <= dexflows_now()
ORDER BY s.due_at LIMIT 200 FOR UPDATE SKIP LOCKED
"""
FIRED = """
SELECT s.output #>> '{}', extract(epoch FROM s.started_at - (s.wait #>> '{conditions,1,due}')::timestamptz)::float8,
    (SELECT max(attempt) FROM dexflows_step_execution)
FROM dexflows_step_execution s WHERE s.state = 'COMPLETED'
"""


def test_a_hundred_thousand_sleepers_cost_nothing(
    story: Story, start_workers: Callable[..., list[StoryWorker]], broker: Broker
) -> None:
    workers = start_workers()
    Client().start_flow(sleep_flow, "original", DAY)
    story.until(lambda: query("SELECT count(*) FROM dexflows_step_execution WHERE state = 'WAITING'") == [(1,)])
    idle = memory_of(workers)
    with connection.cursor() as cursor:
        cursor.execute(COPY_RUNS, (SLEEPERS,))
        cursor.execute(COPY_STEPS)
    Event().wait(20)
    grown = memory_of(workers) - idle
    took = [milliseconds("SELECT * FROM dexflows_next_due()"), milliseconds("SELECT * FROM dexflows_sweep_due(200)")]
    plan = "\n".join(line for (line,) in query("EXPLAIN (ANALYZE, COSTS OFF) " + MINDED))
    print(f"memory grown by {grown / 2**20:.1f} MiB, {sum(broker.messages())} bytes in the broker")
    print(f"looking for the next due takes {took[0]:.2f} ms, a sweep {took[1]:.2f} ms")
    assert "dexflows_step_due_at" in plan
    assert "Seq Scan" not in plan
    assert max(took) < 10
    assert grown < 50 * 2**20
    assert sum(broker.messages()) < 20 * 2**20
    assert query("SELECT state, count(*) FROM dexflows_step_execution GROUP BY 1") == [("WAITING", SLEEPERS + 1)]


def milliseconds(statement: str) -> float:
    """How long the quickest of some runs of a statement takes."""
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        query(statement)
        taken.append((time.perf_counter() - begun) * 1000)
    return min(taken)


def test_a_timer_longer_than_the_visibility_timeout_fires_once(
    story: Story, start_workers: Callable[..., list[StoryWorker]], broker: Broker
) -> None:
    start_workers(3, env={"TEST_VISIBILITY_TIMEOUT": "10"})
    Client().start_flow(sleep_flow, "sleeper", 45.0)
    looks, scheduled = [], []
    for _ in range(44):
        Event().wait(1)
        looks.append(len(broker.messages()))
        if len(looks) % 15 == 0:
            scheduled.append(scheduled_tasks())
    print(f"at most {max(looks)} messages in the broker; scheduled: {scheduled}")
    assert max(looks) <= 1
    assert scheduled == [0, 0]
    assert_fired(story)


def scheduled_tasks() -> int:
    """How many tasks the workers hold back until a time."""
    answers: dict[str, list[Any]] = app.control.inspect(timeout=3).scheduled() or {}
    assert len(answers) == 3
    return sum(map(len, answers.values()))


@pytest.mark.parametrize(("timer", "down"), [(8.0, 12.0), (16.0, 4.0)])
def test_a_timer_keeps_its_time_while_everything_is_down(
    story: Story, start_workers: Callable[..., list[StoryWorker]], broker: Broker, timer: float, down: float
) -> None:
    workers = start_workers(1)
    Client().start_flow(sleep_flow, "sleeper", timer)
    story.until(lambda: query("SELECT state FROM dexflows_step_execution") == [("WAITING",)])
    for worker in workers:
        worker.signal(signal.SIGTERM)
        worker.wait(20)
    broker.clear()
    Event().wait(down)
    begun = time.monotonic()
    start_workers(1)
    ready = time.monotonic()
    late = assert_fired(story)
    after = time.monotonic() - ready
    print(f"late by {late:.2f} s, seen {after:.2f} s after the worker was ready, which took {ready - begun:.2f} s")
    if down > timer:
        assert after < SETTINGS["SWEEP_SECONDS"]
    else:
        assert late < 0.5


def assert_fired(story: Story) -> float:
    """The Flow's timer has fired once and not early; returns by how many seconds it was late."""
    story.until(lambda: query("SELECT status FROM dexflows_run") == [("COMPLETED",)], 30)
    ((output, late, attempts),) = query(FIRED)
    assert (output, attempts) == ("timer", 1)
    assert late >= 0
    return float(late)
