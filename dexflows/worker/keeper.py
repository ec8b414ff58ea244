"""Keeping the leases of running attempts, from the parent of the processes that run them.

A child is alive as long as the system says so, whatever its handler does with the interpreter: a handler that never
releases it keeps its lease, and a killed child loses it at once. A handler that runs past its timeout and does not
let itself be interrupted is ended with its process.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import psutil
from django.db import DatabaseError, InterfaceError, connections

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine import rescue
from dexflows.worker.claims_table import Held
from dexflows.worker.pools import PoolWorker

logger = logging.getLogger(__name__)

RENEW = "SELECT dexflows_renew(%s::jsonb, %s)"
TICK = 0.1
"""Seconds between two looks at the children."""
INTERRUPT_MARGIN = 1.0
"""Seconds past its timeout that a handler gets to notice its interruption."""


class LeaseKeeper(threading.Thread):
    """The thread that keeps, or ends, the attempts of one worker."""

    def __init__(self, worker: PoolWorker) -> None:
        super().__init__(name="dexflows-lease-keeper", daemon=True)
        self._worker = worker
        self._stopped = threading.Event()
        self._next_beat = 0.0

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.wait(TICK):
            try:
                self._look()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("leases could not be kept, trying again: %s", error)
                connections[conf().database].close()
                self._stopped.wait(1.0)
            except Exception:
                logger.exception("the lease keeper failed and goes on")
                self._stopped.wait(1.0)
        connections[conf().database].close()

    def _look(self) -> None:
        running = self._worker.running()
        living = living_pids(running.values())
        kill_overrun(held for held in running.values() if held.pid in living)
        self._end_lost({slot: held for slot, held in running.items() if held.pid not in living})
        if time.monotonic() >= self._next_beat:
            self._renew([held for held in running.values() if held.pid in living])
            self._next_beat = time.monotonic() + conf().heartbeat_seconds

    def _end_lost(self, lost: Mapping[int, Held]) -> None:
        if lost:
            rescue.end_lost(map(attempt_of, lost.values()))
            for slot in lost:
                self._worker.forget(slot)
            self._worker.alarm.set()

    def _renew(self, living: list[Held]) -> None:
        if living:
            text = msgspec.json.encode([attempt_of(held) for held in living]).decode()
            sql.call(conf().database, RENEW, (text, conf().lease_seconds))


def attempt_of(held: Held) -> rescue.Claimed:
    """The attempt that a process holds."""
    return (held.run_id, held.step_type, held.number, held.token)


def living_pids(running: Iterable[Held]) -> set[int]:
    """Which of the processes that hold attempts still live."""
    return {pid for pid in {held.pid for held in running} if pid == os.getpid() or _is_alive(pid)}


def kill_overrun(running: Iterable[Held]) -> None:
    """Kill the children whose handler did not let itself be interrupted at its timeout."""
    now = time.monotonic()
    for held in running:
        if now > held.deadline + INTERRUPT_MARGIN and held.pid != os.getpid():
            message = "%s-%d of run %s runs past its timeout and is ended with its process %d"
            logger.error(message, held.step_type, held.number, held.run_id, held.pid)
            kill(held.pid)


def kill(pid: int) -> None:
    """Kill a child of this worker."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
