"""Stories: Flows on real worker processes."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any

import pytest
from django.db import connection

from dexflows.client import Client
from tests.stories.flows import LEDGER, Order, story_flow
from tests.workers import WorkerProcess

FLEET = {"LEASE_SECONDS": 5.0, "HEARTBEAT_SECONDS": 1.0, "SWEEP_SECONDS": 0.3, "SHUTDOWN_GRACE_SECONDS": 0.5}
MODULES = ("tests.stories.flows",)


class StoryWorker(WorkerProcess):
    """A worker with short times that knows the Flow of the stories."""

    def __init__(self, *, settings: Mapping[str, Any] | None = None, **options: Any) -> None:
        env = {
            **options.pop("env", {}),
            "DJANGO_SETTINGS_MODULE": "tests.stories.settings",
            "TEST_DEXFLOWS": json.dumps(dict(settings or {})),
        }
        super().__init__(env=env, **{"modules": MODULES, **options})


class Story:
    """Starts Flows and looks at what became of them."""

    def __init__(self) -> None:
        self.client = Client()

    def start(self, step: str, number: float = 0.0, **fields: Any) -> str:
        """Start a Flow that goes to this Step; returns its Flow ID."""
        flow_id = uuid.uuid4().hex
        self.client.start_flow(story_flow, flow_id, Order(step, number, **fields))
        return flow_id

    def result(self, flow_id: str, seconds: float = 20) -> Any:
        """The output of a Flow that completes."""
        result = self.client.wait_for_flow(flow_id, seconds)
        assert result.status == "COMPLETED", result
        return result.single_output(int)

    def attempts(self, flow_id: str, step: str = "%") -> list[tuple[str, int, int]]:
        """The attempts that began, as (Step execution, attempt, pid), in order."""
        run_id = self.client.describe_flow(flow_id).run_id
        statement = "SELECT step, attempt, pid FROM story_ledger WHERE run_id = %s AND step LIKE %s ORDER BY id"
        return self.rows(statement, run_id, step)

    def steps(self, flow_id: str, columns: str, step_type: str = "%") -> list[tuple[Any, ...]]:
        """Columns of the Step executions of a Flow."""
        run_id = self.client.describe_flow(flow_id).run_id
        statement = (
            f"SELECT {columns} FROM dexflows_step_execution WHERE run_id = %s AND step_type LIKE %s ORDER BY number"
        )
        return self.rows(statement, run_id, step_type)

    def rows(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Read from the database."""
        with connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall()

    def assert_at_rest(self) -> None:
        """No lock, no waiter and no running Step is left."""
        assert self.rows("SELECT * FROM dexflows_lock_hold") == []
        assert self.rows("SELECT * FROM dexflows_lock_wait") == []
        assert self.rows("SELECT * FROM dexflows_step_execution WHERE state = 'RUNNING'") == []

    def until(self, condition: Callable[[], Any], seconds: float = 20) -> Any:
        """The first true value of a condition that is looked at again and again."""
        pause = Event()
        for _ in range(int(seconds / 0.02)):
            if value := condition():
                return value
            pause.wait(0.02)
        raise AssertionError(f"it did not become true within {seconds} s")


@pytest.fixture
def story(transactional_db: None) -> Story:
    """Give a clean database and what is needed to tell a story on it."""
    with connection.cursor() as cursor:
        cursor.execute(LEDGER)
        cursor.execute("TRUNCATE story_ledger")
    return Story()


@pytest.fixture(scope="module")
def shared_worker(django_db_setup: None) -> Iterator[StoryWorker]:
    """Give one worker for all stories of a module that leave it as it is.

    It sweeps so rarely that nothing is in time by a sweep alone.
    """
    worker = StoryWorker(settings={"LEASE_SECONDS": 1.5, "HEARTBEAT_SECONDS": 0.4, "SWEEP_SECONDS": 30.0})
    worker.start()
    try:
        worker.wait_ready(60)
        yield worker
    finally:
        worker.kill_group()


class Fleet:
    """Two workers; a story may kill or stop one, the next story finds two again."""

    def __init__(self) -> None:
        self.workers: list[StoryWorker] = []

    def fill(self) -> None:
        """Start workers until there are two."""
        self.workers = [worker for worker in self.workers if worker.is_running]
        started = [StoryWorker(settings=FLEET) for _ in range(2 - len(self.workers))]
        self.workers += started
        for worker in started:
            worker.start()
        for worker in started:
            worker.wait_ready(60)

    def of(self, pid: int) -> StoryWorker:
        """The worker that a child belongs to."""
        return next(worker for worker in self.workers if pid in worker.pids())


@pytest.fixture(scope="module")
def _fleet(django_db_setup: None) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        yield fleet
    finally:
        for worker in fleet.workers:
            worker.kill_group()


@pytest.fixture
def fleet(story: Story, _fleet: Fleet) -> Fleet:
    """Give two workers that are ready."""
    _fleet.fill()
    return _fleet


@pytest.fixture
def start_worker(story: Story) -> Iterator[Callable[..., StoryWorker]]:
    """Give a function that starts a worker and waits until it is ready; the worker ends with the test."""
    started: list[StoryWorker] = []

    def start(**options: Any) -> StoryWorker:
        worker = StoryWorker(**options)
        started.append(worker)
        worker.start()
        worker.wait_ready(60)
        return worker

    yield start
    for worker in started:
        worker.kill_group()
