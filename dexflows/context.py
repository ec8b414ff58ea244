"""What a handler is given besides its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, cast

from dexflows.attribute import MAX_NAME_LENGTH
from dexflows.buffer import AttributeBuffer
from dexflows.codec import codec_for, encode_output
from dexflows.errors import ValueMappingError

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
        step_execution_id: str | None = None,
        from_step_execution_id: str | None = None,
        attempt: int = 1,
        first_attempt_at: datetime | None = None,
        recovery_error: RecoveryError | None = None,
        step_locals: Mapping[str, str] | None = None,
        is_cancellation_requested: Callable[[], bool] = _never_canceled,
        wait_for_failed: bool = False,
    ) -> None:
        self.flow_id = flow_id
        self.run_id = run_id
        self.attributes = attributes
        self.step_execution_id = step_execution_id
        self.from_step_execution_id = from_step_execution_id
        self.attempt = attempt
        self.first_attempt_at = first_attempt_at
        self.recovery_error = recovery_error
        self.events: list[tuple[str, str]] = []
        self.local_writes: dict[str, str] = {}
        self._locals = step_locals if step_locals is not None else {}
        self._is_cancellation_requested = is_cancellation_requested
        self._wait_for_failed = wait_for_failed

    def wait_for_method_failed(self) -> bool:
        """Whether `wait_for` failed for good and the Step went on to `execute` all the same."""
        return self._wait_for_failed

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
