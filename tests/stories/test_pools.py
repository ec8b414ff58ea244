"""How leases are kept in each of the pools of Celery."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Hold

pytestmark = pytest.mark.worker

SHORT = {"LEASE_SECONDS": 1.5, "HEARTBEAT_SECONDS": 0.3, "SWEEP_SECONDS": 0.1}


@pytest.mark.parametrize(("pool", "concurrency"), [("threads", 4), pytest.param("solo", 1, marks=pytest.mark.faults)])
def test_steps_run_and_keep_their_leases_in_a_pool_without_children(
    story: Story, start_worker: Callable[..., StoryWorker], tmp_path: Path, pool: str, concurrency: int
) -> None:
    worker = start_worker(pool=pool, concurrency=concurrency, settings=SHORT)
    flow_id = story.start("HoldStep", hold=Hold(str(tmp_path / "gate"), seconds=3.0))
    retried = story.start("FlakyStep", 2.0)
    assert story.result(flow_id) == 1
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1]
    assert story.result(retried) == 3
    story.assert_at_rest()
    assert worker.stop(15) == 0


def test_a_handler_that_never_lets_the_interpreter_go_keeps_its_lease(
    story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    start_worker(settings=SHORT)
    flow_id = story.start("BusyStep", 5.0)
    assert story.result(flow_id, 60) == 1
    assert len(story.attempts(flow_id)) == 1


def test_children_that_come_and_go_share_no_pooled_connection(
    story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    env = {"TEST_POOL": '{"min_size": 1, "max_size": 2}', "WORKER_MAX_TASKS_PER_CHILD": "10"}
    worker = start_worker(concurrency=4, env=env)
    flow_ids = [story.start("CountStep", 3.0) for _ in range(100)]
    assert [story.result(flow_id, 60) for flow_id in flow_ids] == [3] * 100
    assert all(len(story.attempts(flow_id, "CountStep%")) == 3 for flow_id in flow_ids)
    assert not [fault for fault in ("PoolTimeout", "pool is closed", "SSL error") if fault in worker.text()]
