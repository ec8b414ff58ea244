"""Flows that are moved from the workers of one queue to those of another."""

import uuid
from collections.abc import Callable

import pytest

from dexflows import FlowConfig, StartFlowOptions
from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Order, story_flow

pytestmark = pytest.mark.worker


def test_a_flow_runs_on_the_workers_of_its_queue_and_can_be_moved_to_others(
    story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    quick = {"SWEEP_SECONDS": 0.2}
    first = start_worker(queue="first", settings=quick)
    second = start_worker(queue="second", settings=quick)

    def start(queue: str) -> str:
        flow_id = uuid.uuid4().hex
        options = StartFlowOptions(config_override=FlowConfig(worker_target=queue))
        story.client.start_flow(story_flow, flow_id, Order("CountStep", 2.0), options)
        return flow_id

    def pids(flow_id: str) -> set[int]:
        return {pid for _, _, pid in story.attempts(flow_id)}

    stays, moved = start("first"), start("nobody's")
    assert story.result(stays) == 2
    assert pids(stays) <= set(first.pids())
    assert story.attempts(moved) == []
    story.client.update_flow_config(moved, FlowConfig(worker_target="second"))
    assert story.result(moved) == 2
    assert pids(moved) <= set(second.pids())
