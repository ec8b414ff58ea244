"""Thousands of messages for one Flow, which takes one in each Step."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import pytest

from dexflows.client import Client
from tests.faults.conftest import assert_nothing_left, in_threads, query
from tests.faults.flows import numbers, take_flow
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

MESSAGES = 5_000
SENDERS = 8
EACH = MESSAGES // SENDERS
STARTS = """
SELECT extract(epoch FROM started_at)::float8 FROM dexflows_step_execution
WHERE step_type = 'TakeStep' ORDER BY number
"""
OUTPUT = "SELECT output::text FROM dexflows_step_execution WHERE output IS NOT NULL"


def test_each_is_taken_once_while_they_are_sent(story: Story, start_workers: Callable[..., list[StoryWorker]]) -> None:
    start_workers()
    Client().start_flow(take_flow, "taker", MESSAGES)
    send_all()
    assert_taken(story)


def test_the_last_is_as_quick_as_the_first(story: Story, start_workers: Callable[..., list[StoryWorker]]) -> None:
    Client().start_flow(take_flow, "taker", MESSAGES)
    send_all()
    start_workers()
    starts = assert_taken(story)
    takes = [after - before for before, after in pairwise(starts)]
    first, last = median(takes[50:550]), median(takes[4450:4950])
    print(f"the first 500: {starts[550] - starts[50]:.2f} s, the last 500: {starts[4950] - starts[4450]:.2f} s")
    print(f"one message takes {first * 1000:.2f} ms at the beginning and {last * 1000:.2f} ms at the end")
    assert last < 2 * first


def send_all() -> None:
    def send(sender: int) -> None:
        client = Client()
        for place in range(EACH):
            client.publish("taker", numbers, sender * 1_000_000 + place)

    in_threads(send, range(SENDERS), SENDERS)


def assert_taken(story: Story) -> list[float]:
    """The Flow took each message once and those of each sender in order; returns when its Steps began."""
    story.until(lambda: query("SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'") == [(0,)], 300)
    assert query("SELECT status FROM dexflows_run") == [("COMPLETED",)]
    ((output,),) = query(OUTPUT)
    assert json.loads(output) == {str(sender): EACH - 1 for sender in range(SENDERS)}
    assert query("SELECT count(*), max(attempt) FROM dexflows_step_execution") == [(MESSAGES, 1)]
    assert query("SELECT count(*) FROM dexflows_channel_message") == [(0,)]
    assert_nothing_left()
    return [start for (start,) in query(STARTS)]
