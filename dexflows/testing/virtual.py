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
from dexflows.states import StepState
from dexflows.testing import clock
from dexflows.testing.idle import NotIdleError

Rows = list[tuple[Any, ...]]

MAX_ATTEMPTS = 10_000
MAX_JUMPS = 10_000
CAN_RUN = """
SELECT run_id, flow_type, step_type, number, queue, state FROM dexflows_step_execution
WHERE state IN ('QUEUED', 'WAITING', 'BACKOFF', 'WAITING_FOR_LOCK') AND parked_reason IS NULL
    AND due_at >= current_setting('dexflows.done')::timestamptz
    AND (state IN ('QUEUED', 'WAITING_FOR_LOCK') OR due_at <= dexflows_now())
ORDER BY created_at, run_id, step_type, number
"""
JUMP = """
WITH next AS (SELECT least(
    (SELECT min(due_at) FROM dexflows_step_execution
        WHERE state IN ('WAITING', 'BACKOFF') AND parked_reason IS NULL AND due_at > dexflows_now()),
    (SELECT min(deadline) FROM dexflows_run WHERE status = 'RUNNING' AND deadline > dexflows_now())
)::text AS at)
SELECT set_config('dexflows.clock', at, true), set_config('dexflows.done', at, true)
FROM next WHERE at::timestamptz <= coalesce(%s, 'infinity'::timestamptz)
"""
"""The clock only moves when all that was due has been looked at, so nothing due before now needs another look."""
GO_TO = "SELECT set_config('dexflows.clock', %s::timestamptz::text, true)"


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
        return self._run(_call(CAN_RUN))

    def run_until_idle(self, max_jumps: int = MAX_JUMPS) -> int:
        """Run, and let time pass to the next timer, backoff, delayed start or timeout of a Flow, until none is left.

        Returns the number of attempts. Raises NotIdleError when time had to jump more than `max_jumps` times.
        """
        attempts = self.run()
        for _ in range(max_jumps):
            jumped, found = _jump(None)
            if not jumped:
                return attempts
            attempts += self._run(found)
        raise NotIdleError(f"time jumped {max_jumps} times, to {self.now}")

    def advance(self, duration: timedelta | float) -> int:
        """Let so much time pass, as a timedelta or in seconds, and run what becomes due on the way, each at its time.

        Returns the number of attempts.
        """
        until = self.now + timedelta(seconds=seconds(duration, "what a clock is advanced by"))
        attempts = self.run()
        jumped, found = _jump(until)
        while jumped:
            attempts += self._run(found)
            jumped, found = _jump(until)
        _call(GO_TO, until)
        return attempts

    def _run(self, found: Rows) -> int:
        """Run what was found, and what can run then, for as long as that leads to anything."""
        before = self._worker.attempts
        while self._run_once(found):
            if self._worker.attempts - before >= MAX_ATTEMPTS:
                raise NotIdleError(f"{MAX_ATTEMPTS} attempts ran at one moment")
            found = _call(CAN_RUN)
        return self._worker.attempts - before

    def _run_once(self, found: Rows) -> bool:
        if any(state == StepState.BACKOFF for *_, state in found):
            _call(sweeps.DUE, len(found))  # ends backoffs, as a worker's sweep does
        ran = [executor.run(StepKey(*key), self._worker) for *key, _ in found]
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


def _jump(until: datetime | None) -> tuple[bool, Rows]:
    """Move the clock to the next time that something waits for, unless that is later than `until`, and look then."""
    jumped, found = sql.call_all(conf().database, [(JUMP, (until,)), (CAN_RUN, ())])
    return bool(jumped), found


def _call(statement: str, *arguments: object) -> Rows:
    return sql.call(conf().database, statement, arguments)
