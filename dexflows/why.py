"""Why a run is not moving: one reason for each open Step execution, told from its rows.

Three bounded queries whatever the run holds: its open Steps, its lock holders, and the head of its lock queue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.db.models import DateTimeField, Func

from dexflows.attribute import physical_name
from dexflows.conf import conf
from dexflows.models import LockHold, LockWait, Run, StepExecution
from dexflows.states import RunStatus, StepState

__all__ = ["Reason", "ReasonCode", "why"]

CONDITIONS_TOLD = 10
QUEUE_SEEN = 500
"""How much of a run's lock queue is read; a waiter further back is told that it is."""


class ReasonCode(StrEnum):
    """What an open Step, or a running run without one, is waiting for."""

    NOT_TAKEN = "NOT_TAKEN"
    """It is queued and no worker has taken it."""
    PARKED = "PARKED"
    """The workers that saw it do not know its Flow or Step type."""
    RUNNING = "RUNNING"
    """A worker runs it."""
    WORKER_SILENT = "WORKER_SILENT"
    """Its worker's lease has ended; a sweep will start another attempt."""
    BACKOFF = "BACKOFF"
    """An attempt failed and the next one is not due yet."""
    DELAYED_START = "DELAYED_START"
    """The run was started, or is retried, with a delay that has not passed."""
    LOCK_HELD = "LOCK_HELD"
    """Another Step holds a lock it needs."""
    LOCK_QUEUE = "LOCK_QUEUE"
    """Its locks are free of holders, but an earlier waiter comes first."""
    LOCK_FREE = "LOCK_FREE"
    """No Step is in its way: it is about to be woken, or an RPC holds a lock at this moment."""
    TIMER = "TIMER"
    """It waits for a time, and for nothing else that could end its wait."""
    TIMER_DUE = "TIMER_DUE"
    """Its time has come and no worker has taken it yet."""
    CONDITIONS = "CONDITIONS"
    """Messages or SubFlows that its `wait_for` asked for are not there."""
    NO_OPEN_STEP = "NO_OPEN_STEP"
    """The run is open for RPCs and has no Step left."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One Step's reason in words; `step` is None for the run as a whole, `until` is when it will move by itself."""

    code: ReasonCode
    step: str | None
    text: str
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """What the Steps of one run meet: the time, who holds which lock, and who waits in which order."""

    now: datetime
    holds: list[LockHold]
    queue: list[LockWait]

    def place_of(self, step: StepExecution) -> int | None:
        """The index of this Step's row in the part of the queue that was read."""
        key = (step.step_type, step.number)
        return next((i for i, each in enumerate(self.queue) if (each.step_type, each.number) == key), None)

    def holder_before(self, waiter: LockWait) -> LockHold | None:
        """A hold that keeps this waiter from its set of locks."""
        return next((each for each in self.holds if _blocks(each, waiter)), None)

    def waiters_before(self, place: int) -> list[LockWait]:
        """The earlier waiters that want a lock of the one at this place."""
        return [each for each in self.queue[:place] if _meet(each, self.queue[place])]


def why(run: Run, *, limit: int = 100) -> list[Reason]:
    """The reasons of a run's open Steps, at most `limit`; none for a closed run."""
    if RunStatus(run.status).is_closed:
        return []
    database = conf().database
    steps = list(
        StepExecution.objects.using(database)
        .filter(run_id=run.run_id, closed_at__isnull=True)
        .annotate(read_at=Func(function="dexflows_now", output_field=DateTimeField()))
        .defer("input", "options", "plan", "locals", "output")[:limit]
    )
    if not steps:
        return [_of_idle_run(run)]
    scene = _Scene(
        now=steps[0].read_at,
        holds=list(LockHold.objects.using(database).filter(run_id=run.run_id)[:QUEUE_SEEN]),
        queue=list(LockWait.objects.using(database).filter(run_id=run.run_id).order_by("ticket")[:QUEUE_SEEN]),
    )
    return sorted((_reason(step, scene) for step in steps), key=lambda reason: reason.since)


def _reason(step: StepExecution, scene: _Scene) -> Reason:
    if step.parked_reason is not None:
        return _of(step, ReasonCode.PARKED, f"parked: {step.parked_reason}")
    match StepState(step.state):
        case StepState.RUNNING:
            return _of_running(step, scene.now)
        case StepState.BACKOFF:
            return _of_backoff(step)
        case StepState.WAITING_FOR_LOCK:
            return _of_lock_waiter(step, scene)
        case StepState.WAITING:
            return _of_waiting(step, scene.now)
        case _:
            return _of(step, ReasonCode.NOT_TAKEN, f"queued: no worker has taken it from queue {step.queue!r} yet")


def _of(step: StepExecution, code: ReasonCode, text: str, since: datetime | None = None) -> Reason:
    return Reason(code=code, step=step.step_execution_id, text=text, since=since or step.started_at or step.created_at)


def _of_idle_run(run: Run) -> Reason:
    text = "has no open Step: it is open for RPCs until it is stopped"
    return Reason(code=ReasonCode.NO_OPEN_STEP, step=None, text=text, since=run.started_at)


def _of_running(step: StepExecution, now: datetime) -> Reason:
    doing = f"attempt {step.attempt} of {step.method} by worker {step.worker}"
    if step.lease_until is not None and step.lease_until < now:
        text = f"{doing}, which gives no sign of life; it will be rescued"
        return _of(step, ReasonCode.WORKER_SILENT, text, step.lease_until)
    return _of(step, ReasonCode.RUNNING, f"running: {doing}")


def _of_backoff(step: StepExecution) -> Reason:
    if step.attempt == 0:
        text = f"starts at {step.due_at:%Y-%m-%d %H:%M:%S} UTC (delayed start)"
        return replace(_of(step, ReasonCode.DELAYED_START, text), until=step.due_at)
    failure = step.failure or {}
    error = ": ".join(str(failure[key]) for key in ("error_type", "detail") if failure.get(key)) or "an error"
    return Reason(
        code=ReasonCode.BACKOFF,
        step=step.step_execution_id,
        text=f"backs off: attempt {step.attempt} failed with {error}",
        since=step.started_at or step.created_at,
        until=step.due_at,
    )


def _of_waiting(step: StepExecution, now: datetime) -> Reason:
    wait: dict[str, Any] = step.wait or {}
    conditions: list[dict[str, Any]] = wait["conditions"]
    since = _time(wait["since"])
    if step.due_at is not None and step.due_at <= now:
        return _of(
            step, ReasonCode.TIMER_DUE, f"timer due: no worker has taken it from queue {step.queue!r} yet", since
        )
    told = [_condition(each) for each in conditions[:CONDITIONS_TOLD]]
    more = f" and {len(conditions) - len(told)} more" if len(conditions) > len(told) else ""
    code = ReasonCode.TIMER if all("due" in each for each in conditions) else ReasonCode.CONDITIONS
    reason = _of(step, code, f"waits for {_joined(wait['choices'], told)}{more}", since)
    return replace(reason, until=step.due_at)


def _condition(condition: dict[str, Any]) -> str:
    if "due" in condition:
        return f"a timer at {_time(condition['due']):%Y-%m-%d %H:%M:%S} UTC"
    if "channel" in condition:
        count = condition["min"]
        return f"{count} message{'' if count == 1 else 's'} on Channel {physical_name(*condition['channel'])}"
    return f"a SubFlow of {condition['flow_type']}"


def _joined(choices: list[list[int]], told: list[str]) -> str:
    if len(choices) == 1:
        return " and ".join(told)
    alternatives = all(len(each) == 1 for each in choices)
    return " or ".join(told) if alternatives else "a combination of " + ", ".join(told)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _of_lock_waiter(step: StepExecution, scene: _Scene) -> Reason:
    place = scene.place_of(step)
    if place is None:
        behind = len(scene.queue) >= QUEUE_SEEN
        text = f"stands behind more than {QUEUE_SEEN} waiters" if behind else "is just leaving the lock queue"
        return _of(step, ReasonCode.LOCK_QUEUE if behind else ReasonCode.LOCK_FREE, text)
    waiter = scene.queue[place]
    ahead = scene.waiters_before(place)
    standing = f"place {len(ahead) + 1} in the queue"
    if hold := scene.holder_before(waiter):
        held = f"{hold.key}, held by {hold.step_type}-{hold.number} since {hold.acquired_at:%H:%M:%S} UTC"
        return _of(step, ReasonCode.LOCK_HELD, f"waits for lock {held}; {standing}", waiter.waiting_since)
    wanted = ", ".join(waiter.exclusive)
    if ahead:
        text = f"waits for {wanted} behind {ahead[0].step_type}-{ahead[0].number}; {standing}"
        return _of(step, ReasonCode.LOCK_QUEUE, text, waiter.waiting_since)
    text = f"waits for {wanted}, which no Step holds: it is about to be woken, or an RPC has it now"
    return _of(step, ReasonCode.LOCK_FREE, text, waiter.waiting_since)


def _blocks(hold: LockHold, waiter: LockWait) -> bool:
    return hold.key in waiter.exclusive or hold.map_key in waiter.exclusive or hold.key in waiter.shared


def _meet(one: LockWait, other: LockWait) -> bool:
    """The rule of `dexflows_acquire_locks`: two whole-map shares do not meet, anything else on one key does."""
    wanted, shared = set(other.exclusive), set(other.shared)
    return not (wanted.isdisjoint(one.exclusive) and wanted.isdisjoint(one.shared) and shared.isdisjoint(one.exclusive))
