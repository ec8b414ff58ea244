"""What a handler is given besides its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from dexflows.attribute import MAX_NAME_LENGTH
from dexflows.buffer import AttributeBuffer, ChannelBuffer
from dexflows.codec import codec_for, encode_output
from dexflows.errors import InvalidRequestError, ValueMappingError
from dexflows.stream import Stream
from dexflows.wait import Waited

__all__ = ["Context", "RecoveryError"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RecoveryError:
    """Why the Step before a recovery Step failed."""

    error_type: str
    detail: str


def _checked_name(name: object) -> str:
    if type(name) is not str or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise ValueMappingError("$", f"a name must be a str of 1 to {MAX_NAME_LENGTH} printable characters")
    return name


def _never_canceled() -> bool:
    return False


def _not_running(_value: str) -> bool:
    raise InvalidRequestError("only a Step's handler has a heartbeat")


def _not_in_a_step(stream: Stream[Any]) -> Callable[[Any], None]:
    raise InvalidRequestError(f"only a Step's handler writes Streams, so this one cannot write {stream!r}")


NOT_WAITED = Waited()


class Context:
    """One handler's view of its run; what it buffers is committed when the handler returns.

    `step_execution_id` is None in an RPC. `attempt` counts from 1. `recovery_error` is set in a recovery Step.
    """

    def __init__(
        self,
        *,
        flow_id: str,
        run_id: str,
        attributes: AttributeBuffer,
        channels: ChannelBuffer | None = None,
        step_execution_id: str | None = None,
        from_step_execution_id: str | None = None,
        attempt: int = 1,
        first_attempt_at: datetime | None = None,
        attempt_started_at: datetime | None = None,
        recovery_error: RecoveryError | None = None,
        step_locals: Mapping[str, str] | None = None,
        is_cancellation_requested: Callable[[], bool] = _never_canceled,
        heartbeat: Callable[[str], bool] = _not_running,
        last_heartbeat: str | None = None,
        waited: Waited | None = None,
        open_stream: Callable[[Stream[Any]], Callable[[Any], None]] = _not_in_a_step,
    ) -> None:
        self.flow_id = flow_id
        self.run_id = run_id
        self.attributes = attributes
        self.channels = channels if channels is not None else ChannelBuffer(schema={})
        self.waited = waited if waited is not None else NOT_WAITED
        self.open_stream = open_stream
        self.step_execution_id = step_execution_id
        self.from_step_execution_id = from_step_execution_id
        self.attempt = attempt
        self.first_attempt_at = first_attempt_at
        self.recovery_error = recovery_error
        self.events: list[tuple[str, str]] = []
        self.local_writes: dict[str, str] = {}
        self._attempt_started_at = attempt_started_at
        self._locals = step_locals if step_locals is not None else {}
        self._is_cancellation_requested = is_cancellation_requested
        self._heartbeat = heartbeat
        self._last_heartbeat = last_heartbeat

    @property
    def attempt_started_at(self) -> datetime:
        """When this attempt of a Step began, by the clock that Timers go by and tests move; the "now" of a handler.

        Raises InvalidRequestError in an RPC.
        """
        if self._attempt_started_at is None:
            raise InvalidRequestError("only a Step's handler has attempts")
        return self._attempt_started_at

    def wait_for_method_failed(self) -> bool:
        """Whether `wait_for` failed for good and the Step went on to `execute` all the same."""
        return self.waited.wait_for_failed

    def has_timer_fired(self, index: int | None = None) -> bool:
        """In `execute`: whether a Timer of this Step's wait had fired, or was skipped, when the wait was decided.

        The index counts all conditions of the wait from 0; None asks for any Timer. Raises InvalidRequestError when
        the condition is no Timer.
        """
        timers = self.waited.timers
        if index is None:
            return any(timers.values())
        if index not in timers:
            raise InvalidRequestError(f"this Step waited for Timers at the indices {sorted(timers)}, not {index}")
        return timers[index]

    def heartbeat(self, value: object = None) -> bool:
        """Say that this handler is alive, and keep a value for the next attempt. One round trip; at once.

        False when it was not stored: that of an attempt which is not the current one any more is refused, so that
        `is_cancellation_requested()` holds. In an `async def` handler call it through asgiref's `sync_to_async`.
        """
        encoded = encode_output(value, key="heartbeat")
        if not self._heartbeat(encoded):
            return False
        self._last_heartbeat = encoded
        return True

    def get_last_heartbeat(self, value_type: type[T]) -> T | None:
        """The value of the last heartbeat of this Step's handler, of an earlier attempt or of this one, or None."""
        return None if self._last_heartbeat is None else cast("T", codec_for(value_type).decode(self._last_heartbeat))

    def is_cancellation_requested(self) -> bool:
        """Whether this execution was canceled while it runs, or its run closed, so that its result would be dropped.

        Asks the database: in an `async def` handler call it through asgiref's `sync_to_async`.
        """
        return self._is_cancellation_requested()

    def record_event(self, name: str, value: object = None) -> None:
        """Add an event to the run's history when the handler's result commits."""
        self.events.append((_checked_name(name), encode_output(value, key=name)))

    def set_step_execution_local(self, key: str, value: object) -> None:
        """Keep a value for the later handlers and attempts of this Step execution."""
        self.local_writes[_checked_name(key)] = encode_output(value, key=key)

    def get_step_execution_local(self, key: str, value_type: type[T]) -> T | None:
        """The value kept under `key` by this Step execution, or None."""
        raw = self.local_writes.get(key, self._locals.get(key))
        return None if raw is None else cast("T", codec_for(value_type).decode(raw))
