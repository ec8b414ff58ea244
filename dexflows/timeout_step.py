"""The Step that a Flow's `handle_timeout` runs as."""

from __future__ import annotations

from typing import Any

from dexflows.context import Context
from dexflows.decision import StepDecision
from dexflows.flow import Flow
from dexflows.step import Step

__all__ = ["TIMEOUT_STEP", "AsyncTimeoutStep", "TimeoutStep"]

TIMEOUT_STEP = "handle_timeout"
"""Its Step type, which no other Step may have."""


class TimeoutStep(Step[None]):
    """Runs `handle_timeout` of a Flow that overrides it."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.flow = flow

    def get_step_type(self) -> str:
        return TIMEOUT_STEP

    def execute(self, context: Context, input: None) -> StepDecision:
        return self.flow.handle_timeout(context)  # type: ignore[return-value]


class AsyncTimeoutStep(TimeoutStep):
    """The same where `handle_timeout` is an `async def`."""

    async def execute(self, context: Context, input: None) -> StepDecision:  # type: ignore[override]
        return await self.flow.handle_timeout(context)  # type: ignore[misc, no-any-return]
