"""Flows within one transaction that is rolled back: Steps run inline, and time passes when the test lets it.

In such a transaction nothing is ever committed, so nobody is rung. What can run is looked for in the tables, as a
worker's sweeps do, and run by the engine itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine import doorbell, executor, sweeps
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.retry import seconds
from dexflows.testing import clock

MAX_ATTEMPTS = 10_000
MAX_JUMPS = 10_000
NAMED = 5
"""How many of the Steps that keep a test from becoming idle are named."""

CAN_RUN = """
SELECT run_id, flow_type, step_type, number, queue FROM dexflows_step_execution
WHERE parked_reason IS NULL AND due_at IS NOT NULL AND (
    state IN ('QUEUED', 'WAITING_FOR_LOCK') OR state IN ('WAITING', 'BACKOFF') AND due_at <= dexflows_now()
) ORDER BY created_at, run_id, step_type, number
"""
JUMP = """
WITH next AS (SELECT least(
    (SELECT min(due_at) FROM dexflows_step_execution
        WHERE state IN ('WAITING', 'BACKOFF') AND parked_reason IS NULL AND due_at > dexflows_now()),
    (SELECT min(deadline) FROM dexflows_run WHERE status = 'RUNNING' AND deadline > dexflows_now())
) AS at)
SELECT set_config('dexflows.clock', at::text, true) FROM next WHERE at <= coalesce(%s, 'infinity'::timestamptz)
"""
GO_TO = "SELECT set_config('dexflows.clock', %s::timestamptz::text, true)"
OPEN = """
SELECT s.step_type || '-' || s.number || ' of Flow ' || r.flow_id || ' (' || s.state || ', attempt ' || s.attempt || ')'
FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id)
WHERE s.closed_at IS NULL AND s.due_at IS NOT NULL ORDER BY s.due_at, s.created_at LIMIT %s
"""


class NotIdleError(AssertionError):
    """Flows went on and on where a test waited for them to come to rest."""


class VirtualFlows:
    """Runs the Flows of a test and moves its clock; made by the fixture `flows` or by `virtual_flows()`."""

    def __init__(self) -> None:
        self._worker = _CountingWorker("test")

    @property
    def now(self) -> datetime:
        """What the engine takes for the time; an aware datetime."""
        return clock.now()

    def run(self) -> int:
        """Run every Step that can run now, and what follows from it, until nothing can; returns how many attempts.

        Raises NotIdleError after 10,000 attempts at one moment.
        """
        before = self._worker.attempts
        while self._run_once():
            if self._worker.attempts - before >= MAX_ATTEMPTS:
                raise NotIdleError(f"{MAX_ATTEMPTS} attempts ran at one moment, and it goes on: {_open_steps()}")
        return self._worker.attempts - before

    def run_until_idle(self, max_jumps: int = MAX_JUMPS) -> int:
        """Run, and let time pass to the next timer, backoff, delayed start or timeout of a Flow, until none is left.

        Returns the number of attempts. Raises NotIdleError when time had to jump more than `max_jumps` times.
        """
        attempts = self.run()
        for _ in range(max_jumps):
            if not _jump(None):
                return attempts
            attempts += self.run()
        raise NotIdleError(f"time jumped {max_jumps} times, to {self.now}, and it goes on: {_open_steps()}")

    def advance(self, duration: timedelta | float) -> int:
        """Let so much time pass, as a timedelta or in seconds, and run what becomes due on the way, each at its time.

        Returns the number of attempts.
        """
        until = self.now + timedelta(seconds=seconds(duration, "what a clock is advanced by"))
        attempts = self.run()
        while _jump(until):
            attempts += self.run()
        _call(GO_TO, until)
        return attempts

    def _run_once(self) -> bool:
        """Look once for what can run; the sweep ends backoffs, as a worker's does."""
        found, _ = sql.call_all(conf().database, [(CAN_RUN, ()), (sweeps.DUE, (MAX_ATTEMPTS,))])
        ran = [executor.run(StepKey(*row), self._worker) for row in found]
        return any(ran)


@contextmanager
def virtual_flows() -> Iterator[VirtualFlows]:
    """A block in whose transaction time stands still until it is moved; at its end everything is rolled back.

    In a `django.test.TestCase`: `self.flows = self.enterContext(virtual_flows())` in `setUp`.
    """
    ringing = doorbell.install(doorbell.SilentDoorbell())
    try:
        with transaction.atomic(using=conf().database):
            clock.stand_still()
            yield VirtualFlows()
            transaction.set_rollback(True, using=conf().database)
    finally:
        doorbell.install(ringing)


class _CountingWorker(InlineWorker):
    attempts = 0

    def holding(self, *attempt: Any, **named: Any) -> Any:
        self.attempts += 1
        return super().holding(*attempt, **named)


def _jump(until: datetime | None) -> bool:
    """Move the clock to the next time that something waits for, unless that is later than `until`."""
    return bool(_call(JUMP, until))


def _open_steps() -> str:
    return ", ".join(name for (name,) in _call(OPEN, NAMED)) or "it is the Flows' timeouts"


def _call(statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    return sql.call(conf().database, statement, arguments)
