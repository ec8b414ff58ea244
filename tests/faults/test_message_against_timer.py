"""A message and a timer of one wait at the same moment, while processes die."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from threading import Event
from typing import Any

import pytest
from django.db import connections

from dexflows.client import Client
from dexflows.errors import FlowNotActiveOrNotFoundError
from tests.faults.conftest import assert_nothing_left, in_threads, pause_until, query
from tests.faults.flows import Race, race_flow, wake
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

RACES = 300
AT_ONCE = 12
DEADLINE = 1.0
MOST_OFF = 0.005
DUE = """
SELECT extract(epoch FROM (s.wait #>> '{conditions,0,due}')::timestamptz)::float8
FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id) WHERE r.flow_id = %s AND s.wait IS NOT NULL
"""
SAW = """
SELECT r.status, s.output::text, (SELECT count(*) FROM dexflows_channel_message m WHERE m.run_id = r.run_id)
FROM dexflows_run r JOIN dexflows_step_execution s USING (run_id) WHERE r.flow_id = %s
"""


@dataclass
class Told:
    """What one race came to: what each attempt saw, and whether the message is queued or was refused."""

    dies: bool
    saw: list[str]
    queued: int
    refused: bool


def test_the_winner_is_decided_once(story: Story, start_workers: Callable[..., list[StoryWorker]]) -> None:
    start_workers()
    told = run_races(story)
    assert_decided_once(told)
    assert all(len(each.saw) == (2 if each.dies else 1) for each in told)


def test_the_winner_is_decided_once_while_workers_are_killed(
    story: Story, start_workers: Callable[..., list[StoryWorker]]
) -> None:
    with killing(start_workers) as killed:
        told = run_races(story)
    print(f"{len(killed)} workers killed")
    assert len(killed) >= 3
    assert_decided_once(told)
    assert all(len(each.saw) >= (2 if each.dies else 1) for each in told)


def assert_decided_once(told: list[Told]) -> None:
    outcomes = Counter(each.saw[0].split()[0] for each in told)
    lost = sum(each.refused for each in told)
    print(f"{outcomes['message']} messages and {outcomes['timer']} timers won; {lost} messages were refused")
    print(f"{sum(len(each.saw) for each in told)} attempts")
    for each in told:
        assert len(set(each.saw)) == 1, "each attempt saw the same"
        assert each.queued == (0 if each.saw[0] != "timer" or each.refused else 1)
        assert each.saw[0] == "timer" or not each.refused
    assert outcomes["message"] > 0
    assert outcomes["timer"] > 0
    assert_nothing_left()


def run_races(story: Story) -> list[Told]:
    random = Random(11)
    offsets = [random.uniform(-MOST_OFF, MOST_OFF) for _ in range(RACES)]
    refused = in_threads(race, list(enumerate(offsets)), AT_ONCE)
    story.until(lambda: query("SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'") == [(0,)], 120)
    return [look(number, refused=number in set(refused)) for number in range(RACES)]


def race(number_and_offset: tuple[int, float]) -> int | None:
    """Publish to one Flow at its deadline or a little off; returns the race's number if the message was refused."""
    number, offset = number_and_offset
    name, client = f"race-{number}", Client()
    client.start_flow(race_flow, name, Race(DEADLINE, dies=number % 2 == 1))
    pause_until(due_of(name) + offset)
    try:
        client.publish(name, wake, number)
    except FlowNotActiveOrNotFoundError:
        return number
    return None


def due_of(name: str) -> float:
    """When the deadline of a race is, as soon as the wait for it has begun."""
    until, pause = time.monotonic() + 60, Event()
    while time.monotonic() < until:
        if found := query(DUE, name):
            return float(found[0][0])
        pause.wait(0.02)
    raise AssertionError(f"{name} does not wait")


def look(number: int, *, refused: bool) -> Told:
    ((status, output, queued),) = query(SAW, f"race-{number}")
    assert status == "COMPLETED"
    saw = json.loads(output)
    assert saw[0] in ("timer", f"message {number}")
    return Told(dies=number % 2 == 1, saw=saw, queued=queued, refused=refused)


@contextmanager
def killing(start_workers: Callable[..., list[StoryWorker]]) -> Iterator[list[Any]]:
    """Within the block there are two workers, of which one after the other is killed and replaced."""
    workers, random, over, killed = start_workers(), Random(5), Event(), []

    def kill_again_and_again() -> None:
        while not over.wait(random.uniform(2.0, 5.0)):
            victim = workers.pop(0)
            victim.kill_group()
            killed.append(victim)
            workers.extend(start_workers(1))
        connections.close_all()

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()
