"""How a handler of a Step ended, and what that means for its Step execution.

A handler's end becomes one of five values; `transition` turns it into the payload of `sql/settle.sql`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, assert_never

import msgspec
import psycopg
from django.db import Error as DjangoDatabaseError

from dexflows.errors import ChannelMessageNotFoundError, ValueMappingError
from dexflows.retry import RetryAfter, RetryPolicy
from dexflows.states import RunStatus, StepDurability, StepMethod, StepState

MAX_DETAIL = 8_000
"""Characters of an error's text that are kept."""


def clean(text: str) -> str:
    """Text that PostgreSQL can store, shortened in the middle of nowhere rather than refused."""
    kept = text if len(text) <= MAX_DETAIL else f"{text[:MAX_DETAIL]}… ({len(text)} characters)"
    return kept.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _text_of(error: BaseException) -> str:
    """Of what the database says, only the message: its context and hints quote SQL and rows."""
    told = error.__cause__ if isinstance(error, DjangoDatabaseError) else error
    primary = told.diag.message_primary if isinstance(told, psycopg.Error) else None
    return primary or str(error)


def detail_of(error: BaseException) -> str:
    """An exception's text, fit to be stored, also when the exception cannot tell it."""
    try:
        return clean(_text_of(error))
    except Exception as fault:  # noqa: BLE001 - an exception class may do anything in its __str__
        return f"its text cannot be read: {type(fault).__name__}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """What a handler buffered, as raw JSON; `attributes` is what `attribute_effects` returns."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[tuple[tuple[str, str], str], ...] = ()
    deleted: tuple[tuple[tuple[str, str], int], ...] = ()
    events: tuple[tuple[str, str], ...] = ()
    local_writes: Mapping[str, str] = field(default_factory=dict)

    def to_payload(self) -> dict[str, Any]:
        effects: dict[str, Any] = dict(self.attributes)
        if self.published:
            effects["published"] = [(*key, raw(value)) for key, value in self.published]
        if self.deleted:
            effects["deleted"] = [(*key, seq) for key, seq in self.deleted]
        if self.events:
            effects["events"] = [(kind, raw(value)) for kind, value in self.events]
        if self.local_writes:
            effects["locals"] = {key: raw(value) for key, value in self.local_writes.items()}
        return {"effects": effects} if effects else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Movement:
    """A Step execution to create, encoded. `locked`, `timeout`, `durability` and `load` are of its first handler.

    Unless `pinned` to its queue, it is made in the one that its run has when it commits.
    """

    step_type: str
    queue: str
    method: StepMethod
    input: str
    options: Mapping[str, Any] | None
    plan: str | None
    locked: bool
    timeout: float
    durability: StepDurability | None
    load: str | None
    pinned: bool = False

    def to_payload(self) -> dict[str, Any]:
        return {
            "step_type": self.step_type,
            "queue": self.queue if self.pinned else None,
            "method": self.method,
            "input": raw(self.input),
            "options": self.options,
            "plan": raw(self.plan),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitSkipped:
    """`wait_for` returned and there is nothing to wait for: `execute` is next."""

    effects: Effects


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """`wait_for` returned conditions; `wait` is what `sql/begin_wait.sql` takes, `next_timer` in seconds."""

    effects: Effects
    wait: Mapping[str, Any]
    next_timer: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GoneOn:
    """`execute` named the next Steps."""

    effects: Effects
    movements: tuple[Movement, ...]
    cancel: tuple[str, ...] = ()
    cancel_siblings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """`execute` ended its branch. `close` says what that does to the run, if anything; `fallback` may come instead."""

    effects: Effects
    output: str | None = None
    close: Mapping[str, Any] | None = None
    fallback: Movement | None = None
    cancel: tuple[str, ...] = ()
    cancel_siblings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """The attempt failed: nothing that the handler buffered is kept."""

    error_type: str
    detail: str
    retryable: bool = True
    interval: float | None = None
    counted: bool = True
    restartable: bool = False

    @classmethod
    def by(cls, error: BaseException) -> Self:
        """The outcome of an exception that left the handler."""
        if isinstance(error, RetryAfter):
            cause = error.cause if error.cause is not None else error
            return cls(error_type=type(cause).__name__, detail=detail_of(cause), interval=error.seconds)
        retryable = not isinstance(error, ValueMappingError)
        return cls(
            error_type=ChannelMessageNotFoundError.__name__ if is_message_gone(error) else type(error).__name__,
            detail=detail_of(error),
            retryable=retryable,
            restartable=is_restartable(error),
        )


Outcome = WaitSkipped | Waits | GoneOn | Ended | Raised


def is_restartable(error: BaseException) -> bool:
    """Whether the database undid the transaction only because of others: a deadlock or a serialization failure."""
    cause = error.__cause__
    return cause is not None and (getattr(cause, "sqlstate", None) in ("40001", "40P01") or is_restartable(cause))


def is_message_gone(error: BaseException) -> bool:
    """Whether `sql/apply_effects.sql` found a message that was to be deleted not queued any more."""
    return getattr(error.__cause__, "sqlstate", None) == "DF002"


def raw(text: str | None) -> msgspec.Raw | None:
    """JSON text to be put into a payload as it is."""
    return None if text is None else msgspec.Raw(text.encode())


def transition(
    outcome: Outcome, *, attempt: int, elapsed: float, retry: RetryPolicy, instead: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The payload that moves a Step execution from its current attempt to where the outcome leads.

    `instead` is what the last failure leads to where it does not fail the run, see `failures.instead_of_failing`.
    """
    match outcome:
        case WaitSkipped():
            return {"state": StepState.QUEUED, "method": StepMethod.EXECUTE, **outcome.effects.to_payload()}
        case Waits():
            return {"state": StepState.WAITING, "wait": outcome.wait, **outcome.effects.to_payload()}
        case GoneOn():
            movements = [movement.to_payload() for movement in outcome.movements]
            return {"state": StepState.COMPLETED, "movements": movements, **_ending(outcome)}
        case Ended():
            payload = {"state": StepState.COMPLETED, **_ending(outcome)}
            if outcome.output is not None:
                payload["output"] = raw(outcome.output)
            if outcome.close is not None:
                payload["close"] = outcome.close
            if outcome.fallback is not None:
                payload["movements"] = [outcome.fallback.to_payload()]
            return payload
        case Raised():
            return _failed_attempt(outcome, attempt, elapsed, retry, instead)
        case _:
            assert_never(outcome)


def _ending(outcome: GoneOn | Ended) -> dict[str, Any]:
    payload = outcome.effects.to_payload()
    if outcome.cancel:
        payload["cancel"] = outcome.cancel
    if outcome.cancel_siblings:
        payload["cancel_siblings"] = outcome.cancel_siblings
    return payload


def _failed_attempt(
    outcome: Raised, attempt: int, elapsed: float, retry: RetryPolicy, instead: Mapping[str, Any] | None
) -> dict[str, Any]:
    failure = {"error_type": outcome.error_type, "detail": outcome.detail, "attempt": attempt}
    if not outcome.counted:
        effects = {"events": [("STEP_RELEASED", failure)]}
        return {"state": StepState.QUEUED, "delay": 0, "uncounted": True, "effects": effects}
    if outcome.retryable and not retry.is_exhausted(attempt, elapsed):
        delay = outcome.interval if outcome.interval is not None else retry.next_interval(attempt)
        effects = {"events": [("STEP_ATTEMPT_FAILED", failure | {"delay": delay})]}
        return {"state": StepState.BACKOFF, "delay": delay, "failure": failure, "effects": effects}
    if instead is None:
        close = {
            "mode": "force",
            "status": RunStatus.FAILED,
            "error_type": "WORKER_API_FAILED",
            "error_message": f"{outcome.error_type}: {outcome.detail}",
        }
        instead = {"close": close}
    kind = "STEP_WAIT_FOR_FAILED" if "waited" in instead else "STEP_FAILED"
    return {"state": StepState.FAILED, "failure": failure, "effects": {"events": [(kind, failure)]}, **instead}
