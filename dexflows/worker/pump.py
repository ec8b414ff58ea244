"""The thread of each worker that keeps work moving when nobody rings for it."""

import logging
import threading
import time

from django.db import DatabaseError, InterfaceError, connections

from dexflows.conf import conf
from dexflows.engine import closing, rescue, sweeps
from dexflows.tasks import broker_is_reachable
from dexflows.worker.alarm import Alarm

logger = logging.getLogger(__name__)

SHORTEST_PAUSE = 0.005
"""Seconds between two looks when something is due that another sweeper has taken."""
GATHERING_PAUSE = 0.01
"""Seconds after a sweep that found work, in which what becomes due is gathered and rung for together."""


class Pump(threading.Thread):
    """Looks for due work, at the latest every `sweep_seconds` and at the earliest when something is due."""

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(name="dexflows-pump", daemon=True)
        self._alarm = alarm
        self._stopped = threading.Event()
        self._vain_pause = SHORTEST_PAUSE
        self._next_parked = 0.0

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()
        self._alarm.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            self._alarm.wait(self._sweep())
        connections[conf().database].close()

    def _sweep(self) -> float:
        """Look once; returns for how many seconds there is nothing to do."""
        try:
            return self._look()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the sweep failed, trying again: %s", error)
            connections[conf().database].close()
        except Exception:
            logger.exception("the sweep failed, trying again")
        return conf().sweep_seconds

    def _look(self) -> float:
        batch = conf().sweep_batch
        reachable = broker_is_reachable()
        self._look_at_parked(batch, reachable)
        due = sweeps.next_due()
        if not due.is_now:
            return self._pause(due)
        rescued = rescue.rescue_expired(batch) if due.leases <= 0 else 0
        timed_out = closing.time_out(batch) if due.deadlines <= 0 else 0
        rung = sweeps.ring_due(batch) if reachable and due.steps <= 0 else 0
        if max(rescued, timed_out, rung) >= batch:
            return 0.0
        if not reachable:
            return conf().sweep_seconds
        return self._pause_after(rescued + timed_out + rung)

    def _look_at_parked(self, batch: int, reachable: bool) -> None:
        if reachable and time.monotonic() >= self._next_parked:
            full = sweeps.ring_parked(batch) >= batch
            self._next_parked = time.monotonic() + (0.0 if full else conf().sweep_seconds)

    def _pause(self, due: sweeps.Due) -> float:
        self._vain_pause = SHORTEST_PAUSE
        return min(due.first, conf().sweep_seconds)

    def _pause_after(self, done: int) -> float:
        """When what was due is another sweeper's or cannot be ended now, wait longer each time."""
        due = sweeps.next_due()
        if done or not due.is_now:
            return max(self._pause(due), GATHERING_PAUSE)
        self._vain_pause = min(self._vain_pause * 2, conf().sweep_seconds)
        return self._vain_pause
