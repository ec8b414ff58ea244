"""Flows in queues of their own: moved to the workers of another, and timed out by those of any."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from dexflows import FlowConfig, StartFlowOptions
from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Order, story_flow

pytestmark = pytest.mark.worker


def test_a_flow_runs_on_the_workers_of_its_queue_until_it_is_moved_and_times_out_without_any(
    story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    quick = {"SWEEP_SECONDS": 0.2}
    first = start_worker(queue="first", settings=quick)
    second = start_worker(queue="second", settings=quick)

    def start(queue: str, **given: Any) -> str:
        flow_id = uuid.uuid4().hex
        options = StartFlowOptions(config_override=FlowConfig(worker_target=queue), **given)
        story.client.start_flow(story_flow, flow_id, Order("CountStep", 2.0), options)
        return flow_id

    def pids(flow_id: str) -> set[int]:
        return {pid for _, _, pid in story.attempts(flow_id)}

    stays, moved, late = start("first"), start("nobody's"), start("nobody's", timeout=0.5)
    assert story.result(stays) == 2
    assert pids(stays) <= set(first.pids())
    assert story.attempts(moved) == []
    story.client.update_flow_config(moved, FlowConfig(worker_target="second"))
    assert story.result(moved) == 2
    assert pids(moved) <= set(second.pids())
    assert story.client.wait_for_flow(late, 20).error_type == "FLOW_TIMEOUT"
    assert story.attempts(late) == []
