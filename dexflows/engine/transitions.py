"""The calls of the SQL functions that change a Step execution, one round trip each, with typed answers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import StepKey, step_keys

CLAIM = "SELECT * FROM dexflows_claim(%s, %s, %s, %s, %s, %s::jsonb, %s)"
SETTLE = """
SELECT * FROM dexflows_settle(
    %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb
)
"""
SETTLE_WAIT = "SELECT * FROM dexflows_settle_wait(%s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb)"
IS_CURRENT = "SELECT EXISTS (SELECT FROM dexflows_running(%s::jsonb))"
PARK = "SELECT * FROM dexflows_park(%s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """The answer of `sql/claim.sql`; only `outcome` is set unless that is 'claimed', with 'later' also `elapsed`."""

    outcome: str
    flow_id: str
    run_queue: str
    method: str
    attempt: int
    token: UUID
    first_attempt_at: datetime
    elapsed: float
    from_step: str | None
    input: str
    options: str | None
    locals: str | None
    failure: str | None
    locked: bool
    attributes: str
    more: str | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settlement answers: whether it landed, whom to ring, and the next claim of this worker.

    `waited` is what the wait came to, if it held at once.
    """

    landed: bool
    run_status: str
    rings: list[StepKey]
    next_number: int | None
    next_token: UUID | None
    attributes: str | None
    at: datetime
    waited: str | None = None


def claim(key: StepKey, worker: str, plan: str) -> ClaimRow:
    """Begin an attempt, if the Step execution is ready, and for the workers of this queue."""
    arguments = (key.run_id, key.step_type, key.number, worker, conf().lease_seconds, plan, key.queue)
    return ClaimRow(*sql.call(conf().database, CLAIM, arguments)[0])


def settle(key: StepKey, token: UUID, payload: dict[str, Any]) -> Settlement:
    """End an attempt, if it is still the current one. `payload` is what `outcomes.transition` returns."""
    if "wait" in payload:
        return _settle_wait(key, token, dict(payload))
    payload = dict(payload)
    parts = (payload.pop(part, None) for part in ("output", "effects", "movements", "run_on", "close"))
    state = payload.pop("state")
    arguments = (key.run_id, key.step_type, key.number, token, state, *map(as_json, parts), as_json(payload or None))
    return _settlement(key, sql.call(conf().database, SETTLE, arguments)[0])


def _settle_wait(key: StepKey, token: UUID, payload: dict[str, Any]) -> Settlement:
    del payload["state"]
    parts = [payload.pop(part, None) for part in ("effects", "wait", "run_on")]
    arguments = (key.run_id, key.step_type, key.number, token, *map(as_json, parts), as_json(payload))
    return _settlement(key, sql.call(conf().database, SETTLE_WAIT, arguments)[0])


def _settlement(key: StepKey, row: tuple[Any, ...]) -> Settlement:
    landed, status, rings, *rest = row
    return Settlement(landed, status, step_keys(key.run_id, rings) if rings else [], *rest)


def is_current(key: StepKey, token: UUID) -> bool:
    """Whether an attempt may still settle: its Step was not canceled, its run not closed, and its lease not lost."""
    attempts = as_json([(key.run_id, key.step_type, key.number, token)])
    return bool(sql.call(conf().database, IS_CURRENT, (attempts,))[0][0])


def as_json(part: object) -> str | None:
    """A JSON argument of a SQL function; None is SQL's NULL."""
    return None if part is None else msgspec.json.encode(part).decode()


def park(key: StepKey, reason: str) -> bool:
    """Set aside a Step execution that this process does not know; False when it was not there to park."""
    parked, rings = sql.call(conf().database, PARK, (key.run_id, key.step_type, key.number, reason))[0]
    ring_after_commit(step_keys(key.run_id, rings))
    return bool(parked)
