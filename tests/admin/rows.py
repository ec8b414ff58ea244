"""Rows as the engine leaves them, made one by one, so that a test can show any state at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from dexflows.models import AttributeValue, Event, LockHold, LockWait, QueuedMessage, Run, StepExecution
from dexflows.states import RunStatus, StepState

CLOSED = (StepState.COMPLETED, StepState.FAILED, StepState.CANCELED)
DUE = (StepState.QUEUED, StepState.BACKOFF, StepState.WAITING_FOR_LOCK)


def ago(seconds: float = 0) -> datetime:
    """A moment of the past."""
    return datetime.now(UTC) - timedelta(seconds=seconds)


def uuid7(at: datetime) -> UUID:
    with connection.cursor() as cursor:
        cursor.execute("SELECT dexflows_uuid7(%s)", [at])
        run_id: UUID = cursor.fetchone()[0]
    return run_id


def make_run(flow_id: str = "order-1", *, started: float = 600, **columns: Any) -> Run:
    """Make a running run, or one of another status."""
    at = ago(started)
    status = columns.setdefault("status", RunStatus.RUNNING)
    defaults = {
        "run_id": uuid7(at),
        "run_number": 1,
        "flow_type": "Order",
        "queue": "dexflows",
        "started_at": at,
        "closed_at": None if status == RunStatus.RUNNING else at,
    }
    return Run.objects.create(flow_id=flow_id, **(defaults | columns))


def make_step(run: Run, step_type: str, state: StepState, number: int = 1, **columns: Any) -> StepExecution:
    """Make a Step execution whose columns agree with its state."""
    running = state == StepState.RUNNING
    defaults = {
        "flow_type": run.flow_type,
        "queue": run.queue,
        "method": "execute",
        "created_at": run.started_at,
        "token": uuid4() if running else None,
        "worker": "worker-1" if running else None,
        "lease_until": ago(-15) if running else None,
        "method_deadline": ago(-60) if running else None,
        "due_at": ago(-5) if state in DUE else None,
        "closed_at": ago() if state in CLOSED else None,
        "started_at": None if state in (StepState.QUEUED, StepState.WAITING_FOR_LOCK) else ago(30),
        "attempt": 0 if state in (StepState.QUEUED, StepState.WAITING_FOR_LOCK) else 1,
    }
    return StepExecution.objects.create(
        run_id=run.run_id, step_type=step_type, number=number, state=state, **(defaults | columns)
    )


def hold(step: StepExecution, key: str, *, map_key: str | None = None, seconds: float = 20) -> LockHold:
    """Let a running Step hold a lock."""
    return LockHold.objects.create(
        run_id=step.run_id,
        key=key,
        map_key=map_key,
        step_type=step.step_type,
        number=step.number,
        token=step.token,
        acquired_at=ago(seconds),
    )


def wait(step: StepExecution, *exclusive: str, shared: tuple[str, ...] = (), seconds: float = 10) -> LockWait:
    """Put a Step into the lock queue, behind all others."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('dexflows_lock_ticket')")
        ticket = cursor.fetchone()[0]
    return LockWait.objects.create(
        run_id=step.run_id,
        step_type=step.step_type,
        number=step.number,
        exclusive=list(exclusive),
        shared=list(shared),
        ticket=ticket,
        waiting_since=ago(seconds),
    )


def write(run: Run, name: str, value: Any, instance: str = "") -> AttributeValue:
    """Commit a value."""
    return AttributeValue.objects.create(run_id=run.run_id, name=name, instance=instance, value=value, updated_at=ago())


def publish(run: Run, name: str, value: Any, instance: str = "") -> QueuedMessage:
    """Queue a message."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('dexflows_message_seq')")
        seq = cursor.fetchone()[0]
    return QueuedMessage.objects.create(
        run_id=run.run_id, name=name, instance=instance, seq=seq, value=value, published_at=ago()
    )


def record(run: Run, kind: str, step: str | None = None, data: Any = None) -> Event:
    """Append to the history."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('dexflows_event_seq')")
        seq = cursor.fetchone()[0]
    return Event.objects.create(run_id=run.run_id, seq=seq, at=ago(), kind=kind, step=step, data=data)


def make_busy_run(flow_id: str = "order-busy", size: int = 1) -> Run:
    """Make a run with `size` rows of everything that its page shows."""
    run = make_run(flow_id, input={"customer": "<b>Ada</b>", "total": 12.5})
    record(run, "FLOW_STARTED")
    for number in range(1, size + 1):
        holder = make_step(run, "Charge", StepState.RUNNING, number)
        hold(holder, f"balance/account-{number}", map_key="balance/*")
        waiter = make_step(run, "Refund", StepState.WAITING_FOR_LOCK, number)
        wait(waiter, f"balance/account-{number}", shared=("balance/*",))
        make_step(run, "Reserve", StepState.COMPLETED, number)
        failure = {"error_type": "shop.errors.Busy", "detail": "the <i>shop</i> is busy", "attempt": 1}
        make_step(run, "Notify", StepState.BACKOFF, number, failure=failure)
        record(run, "STEP_ATTEMPT_FAILED", f"Notify-{number}", failure)
        publish(run, "orders", {"note": "<script>alert(2)</script>"}, f"shop {number}")
        write(run, "balance", {"cents": number, "owner": "<script>alert(1)</script>"}, f"account-{number}")
    return run
