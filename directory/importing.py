"""Writes many profiles at once, by several writer threads.

Each partition belongs to one writer. So rows of one address are saved in the order of the file and the last one wins,
and the import never conflicts with itself; conflicts with others are retried with jittered backoff. Queues are
bounded: memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Queue
from threading import Event, Thread
from typing import Final

from django.db import connections
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dexflows import RpcLockConflictError, ValueMappingError, WorkerInvocationError
from directory import client
from directory.customer_files import BadRow, CustomerRow

_ROWS_AHEAD: Final = 64
_GIVE_UP_AFTER_SECONDS: Final = 60

retrying = Retrying(
    retry=retry_if_exception_type(RpcLockConflictError),
    wait=wait_random_exponential(multiplier=0.01, max=1),
    stop=stop_after_delay(_GIVE_UP_AFTER_SECONDS),
    reraise=True,
)


class Import:
    """One import under way. ``refused`` holds the rows that the directory itself would not take."""

    def __init__(self, *, writers: int, keep_going: bool, on_row: Callable[[], None]) -> None:
        self.saved = 0
        self.refused: list[BadRow] = []
        self._on_row = on_row
        self._keep_going = keep_going
        self._stopping = Event()
        self._writers = [_Writer(self._save, self._stopping) for _ in range(writers)]

    def run(self, rows: Iterable[CustomerRow]) -> None:
        """Save ``rows`` and return when all are saved; raises the first error that is not about one row."""
        for writer in self._writers:
            writer.start()
        try:
            for row in rows:
                if self._stopping.is_set():
                    break
                self._writers[hash(row.instance) % len(self._writers)].queue.put(row)
        except BaseException:
            self._stopping.set()
            raise
        finally:
            for writer in self._writers:
                writer.queue.put(None)
            for writer in self._writers:
                writer.join()
        self.saved = sum(writer.saved for writer in self._writers)
        for writer in self._writers:
            if writer.failure:
                raise writer.failure

    def _save(self, row: CustomerRow) -> bool:
        try:
            retrying(client.upsert_profile, row.profile)
        except (ValueMappingError, WorkerInvocationError) as error:
            self.refused.append(BadRow(row.line, str(error)))
            if not self._keep_going:
                self._stopping.set()
            return False
        finally:
            self._on_row()
        return True


class _Writer(Thread):
    """Saves the rows of its queue until it takes None. Once stopping, it only empties the queue."""

    def __init__(self, save: Callable[[CustomerRow], bool], stopping: Event) -> None:
        super().__init__(name="customer-import-writer", daemon=True)
        self.queue: Queue[CustomerRow | None] = Queue(maxsize=_ROWS_AHEAD)
        self.saved = 0
        self.failure: Exception | None = None
        self._save = save
        self._stopping = stopping

    def run(self) -> None:
        try:
            for row in iter(self.queue.get, None):
                if not self._stopping.is_set():
                    self._save_one(row)
        finally:
            connections.close_all()

    def _save_one(self, row: CustomerRow) -> None:
        try:
            self.saved += self._save(row)
        except Exception as error:  # noqa: BLE001 - raised again by Import.run, in the caller's thread
            self.failure = error
            self._stopping.set()
