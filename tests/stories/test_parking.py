"""Steps that a worker does not know."""

from collections.abc import Callable

import pytest

from tests.stories.conftest import Story, StoryWorker

pytestmark = pytest.mark.worker


def test_an_unknown_step_is_set_aside_and_runs_when_a_worker_knows_it(
    story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    start_worker(modules=())
    flow_id = story.start("CountStep", 2.0)
    parked = "state, attempt, parked_reason IS NOT NULL"
    story.until(lambda: story.steps(flow_id, parked) == [("QUEUED", 0, True)], 30)
    ((reason,),) = story.steps(flow_id, "parked_reason")
    assert "StoryFlow" in reason
    start_worker(settings={"SWEEP_SECONDS": 0.1})
    assert story.result(flow_id) == 2
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1, 1]
