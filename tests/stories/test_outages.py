"""Stories in which the broker or the database is away for a while."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Hold
from tests.stories.servers import Broker
from tests.workers import PROJECT

pytestmark = pytest.mark.worker

StartWorker = Callable[..., StoryWorker]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Give a broker of the test's own, not started yet."""
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


def _call(worker: StoryWorker, *flow_ids: str) -> list[list[float]]:
    """Start Flows in a process that rings where the worker listens; returns how long its calls took."""
    command = [sys.executable, "-m", "tests.stories.caller", *flow_ids]
    done = subprocess.run(
        command, cwd=PROJECT, env=worker.environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_work_goes_on_after_the_broker_forgot_everything_and_after_its_restart(
    story: Story, broker: Broker, start_worker: StartWorker, tmp_path: Path
) -> None:
    broker.start()
    gate = tmp_path / "gate"
    worker = start_worker(concurrency=1, env={"BROKER_URL": broker.url})
    holding = story.start("HoldStep", hold=Hold(str(gate)))
    story.until(lambda: story.attempts(holding))
    _call(worker, "forgotten")
    with broker.client() as client:
        client.flushall()
    gate.touch()
    assert story.result(holding) == 1
    assert story.result("forgotten") == 2
    broker.stop()
    broker.start()
    _call(worker, "after-restart")
    assert story.result("after-restart", 30) == 2
    story.assert_at_rest()


@pytest.mark.parametrize("fault", ["stopped", "paused", "silent"])
def test_calls_answer_soon_while_the_broker_is_away_and_run_when_it_is_back(
    story: Story, broker: Broker, start_worker: StartWorker, fault: str
) -> None:
    env = {"BROKER_URL": broker.url}
    with broker.broken(fault):
        took = _call(StoryWorker(env=env), "--rpc", "first", "second")
    assert len(took) == 2
    assert max(max(each) for each in took) < 2.0
    start_worker(env=env)
    for flow_id in ("first", "second"):
        assert story.client.wait_for_flow(flow_id, 30).status == "COMPLETED"
        assert sorted(step for step, _, _ in story.attempts(flow_id)) == ["CountStep-1", "CountStep-2", "FlakyStep-1"]


def test_steps_go_on_when_the_database_ends_all_sessions(
    story: Story, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker(concurrency=1)
    gate = tmp_path / "gate"
    flow_id = story.start("HoldStep", hold=Hold(str(gate)))
    story.until(lambda: story.attempts(flow_id))
    end_all = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    assert story.rows(end_all)[0][0] >= 2
    gate.touch()
    assert story.result(flow_id) == 1
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1]
    story.rows(end_all)
    assert story.result(story.start("CountStep", 2.0)) == 2
