"""A worker that is told to stop; see also `test_crashes.py`."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Hold
from tests.stories.servers import SlowLine

pytestmark = pytest.mark.worker

StartWorker = Callable[..., StoryWorker]


@pytest.fixture
def line(story: Story) -> Iterator[SlowLine]:
    """Give a line to the test database."""
    database = connection.connection.info
    line = SlowLine(database.host, database.port)
    yield line
    line.close()


def test_sigterm_waits_for_steps_that_end_in_time(story: Story, start_worker: StartWorker, tmp_path: Path) -> None:
    leaving = start_worker(settings={"SHUTDOWN_GRACE_SECONDS": 20})
    flow_id = story.start("HoldStep", hold=Hold(str(tmp_path / "gate")))
    story.until(lambda: story.attempts(flow_id))
    os.killpg(leaving.pid, signal.SIGTERM)
    story.until(lambda: "Warm shutdown" in leaving.text())
    (tmp_path / "gate").touch()
    assert leaving.wait(15) == 0
    assert story.result(flow_id) == 1
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1]
    story.assert_at_rest()


def test_a_worker_ends_while_the_database_does_not_answer(
    story: Story, start_worker: StartWorker, line: SlowLine, tmp_path: Path
) -> None:
    database = connection.connection.info
    user = f"{database.user}:{database.password}" if database.password else database.user
    url = f"postgresql://{user}@127.0.0.1:{line.port}/{database.dbname}"
    leaving = start_worker(settings={"SHUTDOWN_GRACE_SECONDS": 0.5}, env={"DATABASE_URL": url})
    flow_id = story.start("HoldStep", hold=Hold(str(tmp_path / "gate"), every_attempt=True))
    story.until(lambda: story.attempts(flow_id))
    line.stand_still()
    leaving.signal(signal.SIGTERM)
    assert leaving.wait(0.5 + 8) is not None
    line.close()
    (tmp_path / "gate").touch()
    start_worker()
    assert story.result(flow_id) == 1
    story.assert_at_rest()


def test_a_worker_whose_settings_cannot_work_does_not_start(story: Story) -> None:
    worker = StoryWorker(settings={"LEASE_SECONDS": 1, "HEARTBEAT_SECONDS": 1})
    worker.start()
    assert worker.wait(60) != 0
    story.until(lambda: "HEARTBEAT_SECONDS" in worker.text(), 5)
