"""The Watcher: who looks, for all waiters of this process, whether what they wait for has happened.

It is one thread with one connection, which asks for everything that is awaited in one statement, and less and less
often for what does not come. It looks at the state and not at changes of it, so nothing is lost between a waiter's own
look and the Watcher's first; and it may fail and try again, since its waiters know by themselves when to give up.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
from django.db import DatabaseError, InterfaceError, connections

from dexflows import sql
from dexflows.conf import conf
from dexflows.states import RunStatus, StepState
from dexflows.targets import StepExecutionId

logger = logging.getLogger(__name__)

Awaited: TypeAlias = str
"""One element of what `sql/happened.sql` takes, as JSON text."""

FIRST_PAUSE, LAST_PAUSE = 0.002, 0.25
"""Seconds between two looks at one awaited thing; each pause is twice the one before."""
PAUSE_AFTER_FAILURE = 0.5
"""Seconds after which the Watcher tries again when the database is away."""
BATCH, BATCH_BYTES = 1000, 8 * 1024 * 1024
"""The most that the Watcher asks for in one statement."""

HAPPENED = "SELECT * FROM dexflows_happened(%s::jsonb)"


@dataclass(frozen=True, slots=True)
class Happened:
    """Why a wait is over; `status` is None where the run is gone, `state` where the Step execution has not ended."""

    status: RunStatus | None
    state: StepState | None
    matches: bool


def close_of(run_id: UUID) -> Awaited:
    """Wait for a run to close."""
    return _awaited(run_id)


def end_of(run_id: UUID, step: StepExecutionId) -> Awaited:
    """Wait for a Step execution to end, or its run."""
    return _awaited(run_id, step=step.step_type, number=step.number)


def match_of(run_id: UUID, name: str, instance: str, value: str | None, default: str | None) -> Awaited:
    """Wait for an Attribute to have a value, or its run to close; JSON texts, a `value` of None means absence."""
    raw = {"value": value, "default": default}
    present = {key: msgspec.Raw(text.encode()) for key, text in raw.items() if text is not None}
    return _awaited(run_id, name=name, instance=instance, **present)


def _awaited(run_id: UUID, **parts: Any) -> Awaited:
    return msgspec.json.encode({"run": run_id, **parts}).decode()


def look(*awaited: Awaited) -> dict[Awaited, Happened]:
    """Which of these things have happened, asked in one statement on this thread's connection."""
    rows = sql.call(conf().database, HAPPENED, (f"[{','.join(awaited)}]",))
    return {
        awaited[place - 1]: Happened(status and RunStatus(status), state and StepState(state), matches)
        for place, status, state, matches in rows
    }


@dataclass(eq=False, slots=True)
class _Watch:
    """One waiter's place with the Watcher; `due` is when to look next, on the clock of `time.monotonic`."""

    awaited: Awaited
    happened: Future[Happened] = field(default_factory=Future)
    pause: float = FIRST_PAUSE
    due: float = field(default_factory=lambda: time.monotonic() + FIRST_PAUSE)

    def put_off(self) -> None:
        self.pause = min(self.pause * 2, LAST_PAUSE)
        self.due = time.monotonic() + self.pause


class Watcher:
    """Looks for all waiters of this process, in one thread that lives while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: set[_Watch] = set()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, awaited: Awaited) -> Iterator[Future[Happened]]:
        """Within the block the future given is completed as soon as this is seen to have happened."""
        watch = _Watch(awaited)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="dexflows-watcher", daemon=True)
                thread.start()
                self._thread = thread
            self._watches.add(watch)
            self._changed.notify()
        try:
            yield watch.happened
        finally:
            with self._changed:
                self._watches.discard(watch)
                if not self._watches:
                    self._changed.notify()

    @property
    def waiting(self) -> int:
        """How many waiters there are."""
        return len(self._watches)

    def _run(self) -> None:
        try:
            while due := self._wait_for_due():
                try:
                    self._look_at(due)
                except Exception as error:
                    known = isinstance(error, DatabaseError | InterfaceError)
                    logger.warning("waiters could not be looked after, trying again: %s", error, exc_info=not known)
                    connections[conf().database].close()
                    self._stand_still()
        finally:
            connections[conf().database].close()

    def _wait_for_due(self) -> list[_Watch]:
        """Wait until it is time to look, and return at whom; nobody when nobody waits any more."""
        with self._changed:
            while self._watches:
                pause = min(watch.due for watch in self._watches) - time.monotonic()
                if pause <= 0:
                    return self._due()
                self._changed.wait(pause)
            if self._thread is threading.current_thread():
                self._thread = None
            return []

    def _due(self) -> list[_Watch]:
        """Those due now, and those half-way to it, so that they come to be looked at together."""
        now, size = time.monotonic(), 0
        batch: list[_Watch] = []
        for watch in sorted(self._watches, key=lambda each: each.due):
            size += len(watch.awaited)
            if watch.due - now > watch.pause / 2 or len(batch) == BATCH or (batch and size > BATCH_BYTES):
                break
            batch.append(watch)
        return batch

    def _look_at(self, due: list[_Watch]) -> None:
        found = look(*{watch.awaited: None for watch in due})
        over = []
        with self._changed:
            for watch in due:
                if watch.awaited in found:
                    self._watches.discard(watch)
                    over.append(watch)
                else:
                    watch.put_off()
            idle = not self._watches
        try:
            if idle:
                connections[conf().database].close()
        finally:
            for watch in over:
                if watch.happened.set_running_or_notify_cancel():
                    watch.happened.set_result(found[watch.awaited])

    def _stand_still(self) -> None:
        """Pause after a failure, but not longer than there are waiters."""
        with self._changed:
            self._changed.wait_for(lambda: not self._watches, PAUSE_AFTER_FAILURE)


watcher = Watcher()
"""The Watcher of this process."""
# A forked child has neither the thread nor its waiters, and its lock may be held by a thread that it does not have.
os.register_at_fork(after_in_child=watcher.__init__)  # type: ignore[misc]
