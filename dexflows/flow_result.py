"""How a run ended, or stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dexflows.codec import codec_for
from dexflows.errors import DexflowsError
from dexflows.states import RunStatus

__all__ = ["Completion", "FlowResult", "StoredResult"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One branch's output."""

    step_type: str
    step_execution_id: str
    raw: str

    def decode(self, output_type: type[T]) -> T:
        """The output as its declared type. Raises ValueMappingError when it is none of that type."""
        value: T = codec_for(output_type).decode(self.raw)
        return value


@dataclass(frozen=True, kw_only=True)
class FlowResult:
    """How a run ended, or stands: its completions in the order in which the branches ended."""

    status: RunStatus
    error_type: str | None
    error_message: str | None
    completions: tuple[Completion, ...]

    @property
    def is_terminal(self) -> bool:
        """Whether the run has closed."""
        return self.status.is_closed

    def single_output(self, output_type: type[T]) -> T:
        """The output of the one branch that completed. Raises DexflowsError when there is not exactly one."""
        if len(self.completions) != 1:
            why = f" ({self.error_type}: {self.error_message})" if self.error_type else ""
            raise DexflowsError(f"the run is {self.status}{why} with {len(self.completions)} completions, not one")
        return self.completions[0].decode(output_type)

    @classmethod
    def of(cls, stored: StoredResult) -> FlowResult:
        """A result as it was stored with the Step that waited for it."""
        completions = tuple(
            Completion(step_type=step_type, step_execution_id=f"{step_type}-{number}", raw=bytes(output).decode())
            for step_type, number, output in stored.completions
        )
        return cls(
            status=RunStatus(stored.status),
            error_type=stored.error_type,
            error_message=stored.error_message,
            completions=completions,
        )


class StoredResult(msgspec.Struct):
    """A result in the words of `sql/outlook.sql`; a completion is Step type, number and raw output."""

    status: str
    error_type: str | None
    error_message: str | None
    completions: list[tuple[str, int, msgspec.Raw]]
