"""What an RPC handler returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from dexflows.decision import StepMovement, StepRef

__all__ = ["RPCResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class RPCResult(Generic[T]):
    """An RPC's answer, the Steps it starts and the Step types whose executions it cancels."""

    output: T = None  # type: ignore[assignment]  # RPCResult() answers None
    next_steps: tuple[StepMovement, ...] = ()
    canceling_steps: tuple[StepRef, ...] = ()
