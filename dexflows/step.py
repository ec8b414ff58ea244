"""Steps: units of background work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Generic, TypeVar

from dexflows.context import Context
from dexflows.decision import StepDecision
from dexflows.options import StepOptions
from dexflows.wait import Wait

__all__ = ["Step"]

T = TypeVar("T")


class Step(ABC, Generic[T]):
    """A unit of background work with input T; override `execute`, and `wait_for` to wait before it.

    Both may be `async def`. They may run more than once, and what they buffer is committed once.
    """

    def wait_for(self, context: Context, input: T) -> Wait | Awaitable[Wait]:
        """Say what to wait for before `execute`."""
        return Wait.skip_immediately()

    @abstractmethod
    def execute(self, context: Context, input: T) -> StepDecision | Awaitable[StepDecision]:
        """Do the work and decide what comes next."""

    def get_step_type(self) -> str:
        """The name under which executions are stored; the class name unless overridden."""
        return type(self).__name__

    def get_step_options(self) -> StepOptions:
        """How the handlers run; asked once, at registration."""
        return StepOptions()
