"""Stopping on SIGTERM: no new claims, running Steps may finish, and what does not is given back at once.

    SIGTERM ── grace ──► kill busy children, release their Steps ── margin ──► end the process, whatever still hangs

Nothing here waits for the database without a limit, so that a worker also ends while PostgreSQL does not answer.
"""

import logging
import os
import threading
import time

from django.db import DatabaseError, InterfaceError, connections

from dexflows.conf import conf
from dexflows.engine import rescue
from dexflows.worker.keeper import LeaseKeeper, attempt_of, kill, living_pids
from dexflows.worker.pools import PoolWorker

logger = logging.getLogger(__name__)

TICK = 0.05
EXIT_MARGIN = 2.5
"""Seconds that giving back and Celery's own shutdown get after the grace period."""


class Drain:
    """Ends the work of one worker."""

    def __init__(self, worker: PoolWorker, keeper: LeaseKeeper) -> None:
        self._worker = worker
        self._keeper = keeper
        self._giving_back = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, grace: float, exit_code: int) -> None:
        """Stop claiming now and end what runs within the grace period; returns at once. A later call can shorten it."""
        self._worker.draining = True
        threading.Thread(target=self._exit_after, args=(grace + EXIT_MARGIN, exit_code), daemon=True).start()
        self._thread = threading.Thread(target=self._run, args=(grace,), name="dexflows-drain", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until what was to be given back is: the pool may see its children die before that."""
        if self._thread is not None:
            self._thread.join(EXIT_MARGIN)

    def _run(self, grace: float) -> None:
        until = time.monotonic() + grace
        while self._worker.running():
            if time.monotonic() >= until:
                self._give_back()
                return
            time.sleep(TICK)

    def _give_back(self) -> None:
        """Kill first, so that nothing goes on that could be run a second time elsewhere."""
        with self._giving_back:
            self._keeper.stop()
            running = self._worker.running()
            logger.warning("%d Steps did not end within the grace period and are given back", len(running))
            own = {held.pid for held in running.values()} - {os.getpid()}
            for pid in own:
                kill(pid)
            until = time.monotonic() + 1.0
            while own & living_pids(running.values()) and time.monotonic() < until:
                time.sleep(0.01)
            try:
                rescue.release(map(attempt_of, running.values()))
            except (DatabaseError, InterfaceError) as error:
                logger.warning("Steps could not be given back, their leases will end: %s", error)
            for slot in running:
                self._worker.forget(slot)
            connections[conf().database].close()

    def _exit_after(self, seconds: float, exit_code: int) -> None:
        time.sleep(seconds)
        logger.error("the worker did not end in time and is ended")
        os._exit(exit_code)
