"""Ending attempts whose process will not end them itself.

Level-triggered: what is not rescued now is found again by the next look, of this worker or another. Any number of
rescuers may look at once, since each attempt is settled with its own token, and an expired one only while its lease
is still over; so a lease that was renewed meanwhile wins.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec
from django.db import DatabaseError, InterfaceError, OperationalError

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine import transitions
from dexflows.engine.claims import effective_plan
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.failures import instead_of_failing
from dexflows.engine.keys import StepKey
from dexflows.engine.outcomes import Raised, transition
from dexflows.engine.timelimit import HeartbeatTimeoutError, MethodTimeoutError
from dexflows.registry import registry
from dexflows.retry import RetryPolicy
from dexflows.states import StepMethod

logger = logging.getLogger(__name__)

EXPIRED = "SELECT * FROM dexflows_expired(%s)"
RUNNING = "SELECT * FROM dexflows_running(%s::jsonb)"

Claimed = tuple[UUID, str, int, UUID]
"""An attempt: run ID, Step type, number, token."""


@dataclass(frozen=True)
class Abandoned:
    """A running attempt that nobody runs; one row of `sql/expired.sql` or `sql/running.sql`."""

    run_id: UUID
    flow_type: str
    step_type: str
    number: int
    method: str
    attempt: int
    token: UUID
    worker: str
    options: str | None
    elapsed: float
    overran: float | None
    queue: str = ""

    @property
    def key(self) -> StepKey:
        return StepKey(self.run_id, self.flow_type, self.step_type, self.number, self.queue)

    @cached_property
    def policy(self) -> "Policy":
        """What the failure of this attempt leads to."""
        flow = registry.get(self.flow_type)
        step = flow.steps.get(self.step_type) if flow else None
        if flow is None or step is None:
            return UNKNOWN
        method = StepMethod(self.method)
        plan, _ = effective_plan(flow, step, self.options)
        options = plan.methods[method].options
        beats = options.heartbeat_timeout is not None
        return Policy(options.retry, options.timeout if beats else None, instead_of_failing(flow, step, plan, method))


@dataclass(frozen=True, slots=True)
class Policy:
    """What failures of a handler lead to; `timeout` is set if it has heartbeats."""

    retry: RetryPolicy
    timeout: float | None = None
    instead: Mapping[str, Any] | None = None


UNKNOWN = Policy(RetryPolicy(total_duration=0))
"""Of a Flow that is not known here: another attempt, in a process that knows whether there may be one."""


def rescue_expired(limit: int) -> int:
    """End up to `limit` attempts whose lease is over; returns how many were ended."""
    rows = sql.call(conf().database, EXPIRED, (limit,))
    return sum(_end(each, _lost(each), expired=True) for each in (Abandoned(*row) for row in rows))


def end_lost(claims: Iterable[Claimed]) -> int:
    """End attempts whose process is known to be dead, without waiting for their leases."""
    return sum(_end(each, _lost(each)) for each in _still_running(claims))


def release(claims: Iterable[Claimed]) -> int:
    """Give back attempts that this worker stops on purpose: uncounted, due at once, rung for."""
    outcome = Raised(error_type="WorkerStopped", detail="the worker was told to stop", counted=False)
    released = [each for each in _still_running(claims) if _end(each, outcome)]
    ring_after_commit([each.key for each in released])
    return len(released)


def _still_running(claims: Iterable[Claimed]) -> list[Abandoned]:
    text = msgspec.json.encode(list(claims)).decode()
    return [Abandoned(*row) for row in sql.call(conf().database, RUNNING, (text,))]


def _lost(each: Abandoned) -> Raised:
    if each.overran is not None:
        timeout = each.policy.timeout
        silent = timeout is not None and each.overran < timeout - 0.001
        error, did = (
            (HeartbeatTimeoutError, "gave no heartbeat in time")
            if silent
            else (MethodTimeoutError, "ran past its timeout")
        )
        return Raised(error_type=error.__name__, detail=f"{each.method} {did} on worker {each.worker}")
    return Raised(error_type="WorkerLost", detail=f"worker {each.worker} died or gave no sign of life")


def _end(each: Abandoned, outcome: Raised, *, expired: bool = False) -> bool:
    """Settle one attempt; one that cannot be settled must not keep its neighbours from it."""
    policy = each.policy
    payload = transition(
        outcome, attempt=each.attempt, elapsed=each.elapsed, retry=policy.retry, instead=policy.instead
    )
    payload["release"] = True
    if expired:
        payload["expired"] = True
    try:
        settlement = transitions.settle(each.key, each.token, payload)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError:
        logger.exception("could not end attempt %d of %s in run %s", each.attempt, each.step_type, each.run_id)
        return False
    if settlement.landed:
        message = "attempt %d of %s in run %s ended from outside (%s): now %s"
        logger.warning(
            message, each.attempt, each.key.step_execution_id, each.run_id, outcome.error_type, payload["state"]
        )
        ring_after_commit(settlement.rings)
    return settlement.landed
