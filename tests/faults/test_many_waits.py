"""Ten thousand Flows that wait for messages and timers, on two workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from threading import Event

import pytest

from dexflows.client import Client
from tests.faults.conftest import Broker, memory_of, query
from tests.faults.flows import sleep_flow, wake
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

FLOWS = int(os.environ.get("WAITING_FLOWS", "10000"))
LONGEST = 60.0
EVENTS_PER_SECOND = 60
"""What two cores do with room to spare, the test's own calls included: starts, timers and messages together."""
LATE = """
SELECT extract(epoch FROM s.started_at - (s.wait #>> '{conditions,1,due}')::timestamptz)
FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id)
WHERE r.flow_id LIKE 'sleeper-%%' AND jsonb_array_length(s.wait -> 'conditions') = 2
"""


def test_every_one_ends_once_none_early_and_few_late(
    story: Story, start_workers: Callable[..., list[StoryWorker]], broker: Broker
) -> None:
    workers = start_workers()
    warm_up(story)
    memory_before = memory_of(workers)
    started = start_all()
    looks = publish_all(started, broker)
    story.until(lambda: query("SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'") == [(0,)], 120)
    assert query("SELECT status, count(*) FROM dexflows_run GROUP BY 1") == [("COMPLETED", FLOWS + 50)]
    assert query("SELECT count(*), count(output) FROM dexflows_step_execution") == [(FLOWS + 50, FLOWS + 50)]
    late = sorted(float(each) for (each,) in query(LATE))
    p99 = late[int(len(late) * 0.99)]
    grown = memory_of(workers) - memory_before
    print(f"{len(late)} timers, late by p50 {late[len(late) // 2]:.3f} s, p99 {p99:.3f} s, at most {late[-1]:.3f} s")
    print(f"memory grown by {grown / 2**20:.1f} MiB; at most {max(map(len, looks))} messages in the broker")
    assert len(late) == FLOWS // 2
    assert late[0] >= 0, "none is early"
    assert p99 < 0.1
    assert grown < 50 * 2**20
    assert all(size < 2_000 for look in looks for size in look), "nothing but short messages"
    assert broker.messages() == []


def warm_up(story: Story) -> None:
    for number in range(50):
        Client().start_flow(sleep_flow, f"warm-up-{number}", 0.01)
    story.until(lambda: query("SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'") == [(0,)])


def start_all() -> list[str]:
    """Start those that wait for a message, then those with a timer, at an even pace; returns the former."""
    random, client = Random(7), Client()
    names = [f"listener-{number}" for number in range(FLOWS // 2)]
    for name in paced(names, EVENTS_PER_SECOND):
        client.start_flow(sleep_flow, name, 0.0)
    for name in paced([f"sleeper-{number}" for number in range(FLOWS // 2)], EVENTS_PER_SECOND / 2):
        client.start_flow(sleep_flow, name, random.uniform(0.5, LONGEST))
    return names


def paced(names: list[str], per_second: float) -> Iterator[str]:
    """Give the names one by one, so many in a second."""
    begun, pause = time.monotonic(), Event()
    for number, name in enumerate(names):
        due_in = begun + number / per_second - time.monotonic()
        if due_in > 0:
            pause.wait(due_in)
        yield name


def publish_all(names: list[str], broker: Broker) -> list[list[int]]:
    """Publish to those without a timer while the timers fire, and look into the broker now and then."""
    looks, client = [], Client()
    beside_timers = int(LONGEST * EVENTS_PER_SECOND / 2)
    first, rest = names[:beside_timers], names[beside_timers:]
    both = chain(paced(first, EVENTS_PER_SECOND / 2), paced(rest, EVENTS_PER_SECOND))
    for number, name in enumerate(both):
        client.publish(name, wake, number)
        if not number % 50:
            looks.append(broker.messages())
    return looks
