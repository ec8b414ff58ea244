"""Two workers for the long runs, and what is looked at besides the Flows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

import psutil
import pytest
import redis
from django.conf import settings
from django.db import connection, connections

from tests.stories.conftest import Story, StoryWorker

SETTINGS = {"LEASE_SECONDS": 5.0, "HEARTBEAT_SECONDS": 1.0, "SWEEP_SECONDS": 1.0}
MODULES = ("tests.faults.flows",)
NOTHING_LEFT = """
SELECT (SELECT count(*) FROM dexflows_lock_hold), (SELECT count(*) FROM dexflows_lock_wait),
    (SELECT count(*) FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id)
        WHERE r.status <> 'RUNNING' AND s.closed_at IS NULL)
"""

T = TypeVar("T")
U = TypeVar("U")


class Broker:
    """What lies in the broker under the keys of this test run."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(settings.CELERY_BROKER_URL)
        self._prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("global_keyprefix", "")

    def clear(self) -> None:
        """Drop what an earlier test run with the same keys has left."""
        if found := self._redis.keys(f"{self._prefix}*"):
            self._redis.delete(*found)

    def messages(self) -> list[int]:
        """The sizes in bytes of all messages, waiting or not acknowledged."""
        sizes: list[int] = []
        for key in self._redis.keys(f"{self._prefix}*"):
            kind = self._redis.type(key)
            if kind == b"list":
                sizes += [len(each) for each in self._redis.lrange(key, 0, -1)]
            elif kind == b"hash":
                sizes += [len(each) for each in self._redis.hvals(key)]
        return sizes


@pytest.fixture
def broker() -> Broker:
    """Give a look into the broker, which is empty."""
    broker = Broker()
    broker.clear()
    return broker


@pytest.fixture
def story(transactional_db: None) -> Story:
    """Give a clean database."""
    return Story()


@pytest.fixture
def start_workers(story: Story, broker: Broker) -> Iterator[Callable[..., list[StoryWorker]]]:
    """Give a function that starts workers; they end with the test."""
    started: list[StoryWorker] = []

    def start(number: int = 2, **options: Any) -> list[StoryWorker]:
        own = SETTINGS | options.pop("settings", {})
        workers = [StoryWorker(settings=own, modules=MODULES, **options) for _ in range(number)]
        started.extend(workers)
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.wait_ready(60)
        return workers

    yield start
    for worker in started:
        worker.kill_group()


def in_threads(function: Callable[[T], U], arguments: Sequence[T], threads: int) -> list[U]:
    """What a function returns for each argument, called in threads with connections of their own."""

    def work(share: Sequence[T]) -> list[U]:
        try:
            return [function(each) for each in share]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(work, [arguments[part::threads] for part in range(threads)]))
    return [each for share in shares for each in share]


def pause_until(moment: float) -> None:
    """Wait until `time.time` has come to a moment."""
    if (left := moment - time.time()) > 0:
        Event().wait(left)


def assert_nothing_left() -> None:
    """No lock, no waiter, and no open Step of a closed run."""
    assert query(NOTHING_LEFT) == [(0, 0, 0)]


def memory_of(workers: list[StoryWorker]) -> int:
    """The memory of the workers' processes that they share with nobody, in bytes."""
    return sum(psutil.Process(pid).memory_full_info().uss for worker in workers for pid in worker.pids())


def query(statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """What the database says."""
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return list(cursor.fetchall())
