"""The worker as its Steps see it, for each kind of Celery pool."""

import ctypes
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Protocol
from uuid import UUID

from billiard.process import current_process

from dexflows.conf import conf
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import UNWATCHED, Holding
from dexflows.worker.alarm import Alarm
from dexflows.worker.claims_table import ClaimsTable, Held

PR_SET_PDEATHSIG = 1


class PoolWorker(Protocol):
    """A worker whose running attempts can be listed; see `engine.leases.Worker` for what Steps use of it."""

    draining: bool
    alarm: Alarm

    def running(self) -> Mapping[int, Held]:
        """The attempts that run, each under a number that `forget` takes."""

    def forget(self, slot: int) -> None:
        """Drop an attempt that ended with its process."""


class ForkingWorker:
    """A worker with a pool of child processes; made by the parent, inherited by the children."""

    def __init__(self, hostname: str, *, forks_in_main_thread: bool) -> None:
        self.alarm = Alarm()
        self._hostname = hostname
        self._table = ClaimsTable()
        self._parent = os.getpid()
        self._ends_with_parent = forks_in_main_thread
        self._slot: int | None = None

    @property
    def name(self) -> str:
        return f"{self._hostname}:{os.getpid()}"

    @property
    def draining(self) -> bool:
        return self._table.draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._table.draining = value

    def begin_child(self) -> int:
        """Make the calling process a child of this worker that ends with its parent; returns its slot."""
        if self._ends_with_parent:
            _end_with_parent(self._parent)
        self._slot = self._table.free_slot(getattr(current_process(), "index", 0))
        return self._slot

    @contextmanager
    def holding(self, key: StepKey, token: UUID, timeout: float) -> Iterator[Holding]:
        slot = self._slot if self._slot is not None else self.begin_child()
        self._table.put(slot, _held(key, token, timeout))
        previous = signal.signal(signal.SIGTERM, _finish_first)
        try:
            yield Holding(partial(self._table.set_deadline, slot))
        finally:
            self._table.clear(slot)
            signal.signal(signal.SIGTERM, previous)

    def due_in(self, seconds: float) -> None:
        if seconds < conf().sweep_seconds:  # else the next look of the pump comes first
            self.alarm.set(seconds)

    def running(self) -> Mapping[int, Held]:
        return self._table.active()

    def forget(self, slot: int) -> None:
        self._table.clear(slot)


class ThreadingWorker:
    """A worker whose Steps run in threads of its one process."""

    def __init__(self, hostname: str) -> None:
        self.alarm = Alarm()
        self.draining = False
        self.name = f"{hostname}:{os.getpid()}"
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._running: dict[int, Held] = {}

    @contextmanager
    def holding(self, key: StepKey, token: UUID, timeout: float) -> Iterator[Holding]:
        slot = next(self._numbers)
        with self._lock:
            self._running[slot] = _held(key, token, timeout)
        try:
            yield UNWATCHED  # a thread cannot be ended
        finally:
            self.forget(slot)

    def due_in(self, seconds: float) -> None:
        if seconds < conf().sweep_seconds:  # else the next look of the pump comes first
            self.alarm.set(seconds)

    def running(self) -> Mapping[int, Held]:
        with self._lock:
            return dict(self._running)

    def forget(self, slot: int) -> None:
        with self._lock:
            self._running.pop(slot, None)


def _held(key: StepKey, token: UUID, timeout: float) -> Held:
    return Held(
        run_id=key.run_id,
        step_type=key.step_type,
        number=key.number,
        token=token,
        pid=os.getpid(),
        deadline=time.monotonic() + timeout,
    )


def _finish_first(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM to a whole process group reaches busy children too: the parent decides how long they may go on."""


def _end_with_parent(parent: int) -> None:
    """Without its parent a child has nobody to keep its leases. (Linux watches the thread that forked.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
