"""Flows with real commits and connections: threads take the part of workers, and the clock can be put forward.

The threads are rung as workers are, sweep as they do, and run Steps by the engine itself. They keep no leases, and
need none: no thread is lost without its process.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import Error, connections

from dexflows.conf import conf
from dexflows.engine import closing, doorbell, executor, sweeps
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.retry import seconds
from dexflows.testing import clock
from dexflows.testing.idle import NotIdleError, is_busy

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 0.2
"""Seconds between two looks at what is due."""
SHORTEST_PAUSE = 0.005
PATIENCE = 10.0
"""Seconds that a Step which still runs at the end of a test gets to end."""


@dataclass
class LiveFlows:
    """The clock of a test with real connections; made by the fixture `flows_live` or by `live_flows()`."""

    _look: threading.Event = field(default_factory=threading.Event)

    @property
    def now(self) -> datetime:
        """What the engine takes for the time; an aware datetime."""
        return clock.now()

    def advance(self, duration: timedelta | float) -> None:
        """Put the clock of the database forward, by a timedelta or seconds. What has become due then runs by itself.

        A Step that runs meanwhile does not notice: its lease and its timeout move along.
        """
        clock.put_forward(seconds(duration, "what a clock is advanced by"))
        self._look.set()

    def wait_until_idle(self, timeout: float = PATIENCE) -> None:
        """Wait until every open Step waits for a time, a message or a SubFlow; NotIdleError after `timeout` seconds.

        A timer is counted from when its wait was stored: so wait before the clock is put forward past it.
        """
        until, pause = time.monotonic() + timeout, threading.Event()
        while is_busy():
            if time.monotonic() >= until:
                raise NotIdleError(f"{timeout:g} s have passed")
            pause.wait(SHORTEST_PAUSE)


@contextmanager
def live_flows(threads: int = 2) -> Iterator[LiveFlows]:
    """A block in which so many threads run Steps, by a clock that goes on and can be put forward.

    With 0 threads there is only the clock, for workers that the test starts itself. The block must not be inside a
    transaction: in pytest use `transactional_db`, in Django a TransactionTestCase.
    """
    if connections[conf().database].in_atomic_block:
        raise RuntimeError("live Flows need real commits: use transactional_db, or a TransactionTestCase")
    flows = LiveFlows()
    with clock.shared():
        if threads == 0:
            yield flows
            return
        fleet = _Fleet(flows._look, threads)
        ringing = doorbell.install(fleet)
        try:
            yield flows
        finally:
            doorbell.install(ringing)
            fleet.stop()


class _Fleet:
    """Threads that run what is rung for, and one that sweeps."""

    def __init__(self, look: threading.Event, threads: int) -> None:
        self._look = look
        self._stopping = False
        self._rung: queue.SimpleQueue[StepKey | None] = queue.SimpleQueue()
        self._worker = _HintingWorker("test", look=look)
        targets = [self._sweep, *[self._run] * threads]
        self._threads = [threading.Thread(target=target, name=f"dexflows-test{target.__name__}") for target in targets]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def ring(self, steps: Sequence[StepKey]) -> None:
        for step in steps:
            self._rung.put(step)

    def stop(self) -> None:
        """End the threads, each once its Step has ended."""
        self._stopping = self._worker.draining = True
        self._look.set()
        for _ in self._threads:
            self._rung.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)
        if any(thread.is_alive() for thread in self._threads):
            raise RuntimeError(f"a Step was still running {PATIENCE:g} s after the end of its test")

    def _run(self) -> None:
        while (key := self._rung.get()) is not None:
            try:
                executor.run(key, self._worker)
            except Exception:
                logger.exception("%s of run %s could not be run", key.step_execution_id, key.run_id)
        connections.close_all()

    def _sweep(self) -> None:
        while not self._stopping:
            self._look.clear()
            try:
                pause = self._look_once()
            except Error:
                logger.exception("the sweep failed, trying again")
                connections[conf().database].close()
                pause = LONGEST_PAUSE
            self._look.wait(pause)
        connections.close_all()

    def _look_once(self) -> float:
        """Ring for what is due; returns for how many seconds there is nothing to do."""
        closing.time_out(conf().sweep_batch)
        sweeps.ring_due(conf().sweep_batch)
        return min(max(sweeps.next_due().first, SHORTEST_PAUSE), LONGEST_PAUSE)


@dataclass
class _HintingWorker(InlineWorker):
    look: threading.Event = field(default_factory=threading.Event)

    def due_in(self, seconds: float) -> None:
        self.look.set()
