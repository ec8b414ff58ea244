"""Fixtures that every test may use: a database of this test run's own, a second connection, real worker processes."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.workers import WorkerProcess

pytest_plugins = ["dexflows.testing"]
SLOTS = 64


def pytest_configure(config: pytest.Config) -> None:
    """Take a free slot, so that several test runs of one checkout do not meet in a database or a queue."""
    slot = _take_slot(Path(settings.STATE_DIR) / "test-slots")
    config.stash[SLOT_KEY] = slot
    settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"] = f"test{slot}:"


SLOT_KEY = pytest.StashKey[int]()


def _take_slot(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for slot in range(SLOTS):
        fd = os.open(folder / str(slot), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        else:
            return slot  # The lock lasts as long as this process.
    raise pytest.UsageError(f"{SLOTS} test runs are using this checkout already.")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(request: pytest.FixtureRequest) -> None:
    """Name the test database after the slot of this run."""
    name = f"test_{settings.DATABASES['default']['NAME']}_{request.config.stash[SLOT_KEY]}"
    connection.settings_dict["TEST"]["NAME"] = name


@pytest.fixture
def second_connection(transactional_db: None) -> Iterator[BaseDatabaseWrapper]:
    """Give another connection to the test database, for races between two sessions."""
    other = connection.copy()
    yield other
    other.close()


@pytest.fixture
def worker(transactional_db: None) -> Iterator[WorkerProcess]:
    """Give a real Celery worker on the test database, started and ready."""
    process = WorkerProcess()
    process.start()
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop()


@pytest.fixture
def make_worker(transactional_db: None) -> Iterator[type[WorkerProcess]]:
    """Give the class of worker processes; every one that the test starts is ended with it."""
    started: list[WorkerProcess] = []

    class Tracked(WorkerProcess):
        def start(self) -> None:
            started.append(self)
            super().start()

    yield Tracked
    for process in started:
        process.kill_group()
