"""Flows that are canceled at the moment at which they complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from threading import Event

import pytest

from dexflows import StopFlowOptions, StopType
from dexflows.client import Client
from dexflows.errors import FlowNotActiveOrNotFoundError
from tests.faults.conftest import assert_nothing_left, in_threads, query
from tests.faults.flows import chain_flow
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

FLOWS = 500
AT_ONCE = 4
STEPS = 3
MEDIAN_TIME = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM closed_at - started_at)) FROM dexflows_run
"""
STARTED_TOO_LATE = """
SELECT r.flow_id FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id) WHERE s.started_at > r.closed_at
"""


def test_what_the_cancel_answers_is_what_became_of_the_flow(
    story: Story, start_workers: Callable[..., list[StoryWorker]]
) -> None:
    start_workers()
    longest = 2 * median_time(story)
    random = Random(3)
    pauses = [random.uniform(0, longest) for _ in range(FLOWS)]
    answers = dict(in_threads(cancel, list(enumerate(pauses)), AT_ONCE))
    statuses = dict(query("SELECT flow_id, status FROM dexflows_run WHERE flow_id LIKE 'raced-%%'"))
    print(f"canceled within {longest * 1000:.0f} ms after the start: {Counter(statuses.values())}")
    assert statuses == answers
    assert set(Counter(answers.values())) == {"CANCELED", "COMPLETED"}
    assert query(STARTED_TOO_LATE) == []
    assert_nothing_left()


def median_time(story: Story) -> float:
    """How long such a Flow takes here, in seconds."""
    for number in range(30):
        name = f"before-{number}"
        Client().start_flow(chain_flow, name, STEPS)
        Client().wait_for_flow(name, 20)
    return float(query(MEDIAN_TIME)[0][0])


def cancel(number_and_pause: tuple[int, float]) -> tuple[str, str]:
    """Start a Flow and cancel it after a pause; returns its Flow ID and the status that the answer means."""
    number, pause = number_and_pause
    name, client = f"raced-{number}", Client()
    client.start_flow(chain_flow, name, STEPS)
    Event().wait(pause)
    try:
        client.stop_flow(name, StopFlowOptions(type=StopType.CANCEL))
    except FlowNotActiveOrNotFoundError:
        return name, "COMPLETED"
    return name, "CANCELED"
