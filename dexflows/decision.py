"""What an `execute` handler returns: what comes next in this branch of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dexflows.channel import LoadedChannel
    from dexflows.options import StepOptions
    from dexflows.step import Step

__all__ = [
    "DecisionKind",
    "StepDecision",
    "StepMovement",
    "StepRef",
    "dead_end",
    "force_complete",
    "force_complete_if_channels_empty",
    "force_fail",
    "go_to",
    "go_to_many",
    "graceful_complete",
]

StepRef: TypeAlias = "type[Step[Any]] | Step[Any]"


class DecisionKind(StrEnum):
    """The ways a branch can go on or end."""

    GO_TO = "GO_TO"
    """Create the Step executions of the movements."""
    GRACEFUL_COMPLETE = "GRACEFUL_COMPLETE"
    """End this branch; the run completes when every branch has ended."""
    FORCE_COMPLETE = "FORCE_COMPLETE"
    """Complete the run now and discard other Steps."""
    FORCE_COMPLETE_IF_CHANNELS_EMPTY = "FORCE_COMPLETE_IF_CHANNELS_EMPTY"
    """Complete the run now if no message is queued, else create the Step execution of the one movement."""
    FORCE_FAIL = "FORCE_FAIL"
    """Fail the run now and discard other Steps."""
    DEAD_END = "DEAD_END"
    """End this branch and leave the run running."""


@dataclass(frozen=True)
class StepMovement:
    """A Step execution to create."""

    step: StepRef
    input: object = None
    options: StepOptions | None = None

    @classmethod
    def of(cls, step: StepRef, input: object = None, options: StepOptions | None = None) -> StepMovement:
        """Name a Step by class or registered instance; `options` replace the Step's own."""
        return cls(step, input, options)


@dataclass(frozen=True, kw_only=True)
class StepDecision:
    """What comes next after a Step; made by the functions of this module."""

    kind: DecisionKind
    movements: tuple[StepMovement, ...] = ()
    output: object = None
    reason: str = ""
    channels: tuple[LoadedChannel, ...] = ()
    canceling_steps: tuple[StepRef, ...] = ()
    canceling_sibling_steps: tuple[StepRef, ...] = ()

    def __post_init__(self) -> None:
        if type(self.reason) is not str:
            raise TypeError(f"the reason of force_fail is a text, not {self.reason!r}")
        for each in self.movements:
            if not isinstance(each, StepMovement):
                raise TypeError(f"a next Step is named by StepMovement.of(step, input), not {each!r}")

    def with_canceling_steps(self, *steps: StepRef) -> StepDecision:
        """Also cancel every current execution of these Step types, but not the decision's own next Steps."""
        return replace(self, canceling_steps=self.canceling_steps + steps)

    def with_canceling_sibling_steps(self, *steps: StepRef) -> StepDecision:
        """Also cancel the executions of these Step types that have the same parent as this one."""
        return replace(self, canceling_sibling_steps=self.canceling_sibling_steps + steps)


def go_to(step: StepRef, input: object = None, options: StepOptions | None = None) -> StepDecision:
    """Go on with one Step."""
    return go_to_many(StepMovement.of(step, input, options))


def go_to_many(*movements: StepMovement) -> StepDecision:
    """Go on with several Steps side by side."""
    if not movements:
        raise ValueError("go_to_many needs at least one movement")
    return StepDecision(kind=DecisionKind.GO_TO, movements=movements)


def graceful_complete(output: object = None) -> StepDecision:
    """End this branch with an output; the run completes when every branch has ended."""
    return StepDecision(kind=DecisionKind.GRACEFUL_COMPLETE, output=output)


def force_complete(output: object = None) -> StepDecision:
    """Complete the run now with an output and discard other Steps."""
    return StepDecision(kind=DecisionKind.FORCE_COMPLETE, output=output)


def force_complete_if_channels_empty(
    output: object, fallback_movement: StepMovement, *channels: LoadedChannel
) -> StepDecision:
    """Complete the run now with an output if no message is queued in these Channels, else go on with the fallback.

    A ChannelMap stands for all its instances, `channel_map.load(instance)` for one. No message can be published
    between the look and the completion.
    """
    if not channels:
        raise ValueError("force_complete_if_channels_empty needs at least one Channel")
    return StepDecision(
        kind=DecisionKind.FORCE_COMPLETE_IF_CHANNELS_EMPTY,
        output=output,
        movements=(fallback_movement,),
        channels=channels,
    )


def force_fail(reason: str = "") -> StepDecision:
    """Fail the run now and discard other Steps."""
    return StepDecision(kind=DecisionKind.FORCE_FAIL, reason=reason)


def dead_end() -> StepDecision:
    """End this branch and leave the run running."""
    return StepDecision(kind=DecisionKind.DEAD_END)
