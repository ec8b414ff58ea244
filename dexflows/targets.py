"""What a client's call is about within a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dexflows.retry import seconds
from dexflows.wait import MAX_CONDITIONS, checked_condition_id

__all__ = [
    "AttributeMatch",
    "StepExecutionId",
    "TimerId",
    "WaitForAttributeOptions",
    "WaitForStepCompletionOptions",
]


@dataclass(frozen=True)
class StepExecutionId:
    """One execution of a Step type in a run, counted from 1."""

    step_type: str
    number: int = 1

    def __post_init__(self) -> None:
        if type(self.step_type) is not str or not self.step_type:
            raise ValueError(f"step_type must be a text, not {self.step_type!r}")
        if type(self.number) is not int or self.number < 1:
            raise ValueError(f"number must be a whole number, 1 or more, not {self.number!r}")

    def __str__(self) -> str:
        return f"{self.step_type}-{self.number}"


@dataclass(frozen=True, kw_only=True)
class TimerId:
    """A Timer of a wait: by its place among all conditions of the wait, from 0, or by its `condition_id`."""

    index: int | None = None
    condition_id: str | None = None

    def __post_init__(self) -> None:
        if (self.index is None) == (self.condition_id is None):
            raise ValueError("a TimerId is a condition index or a condition_id; use one of its named constructors")
        if self.condition_id is not None:
            checked_condition_id(self.condition_id)
        elif type(self.index) is not int or not 0 <= self.index < MAX_CONDITIONS:
            raise ValueError(f"a condition index is a whole number from 0 to {MAX_CONDITIONS - 1}, not {self.index!r}")

    @classmethod
    def by_condition_index(cls, index: int) -> TimerId:
        """The Timer that is condition number `index` of its wait, counted from 0."""
        return cls(index=index)

    @classmethod
    def by_condition_id(cls, condition_id: str) -> TimerId:
        """The Timer with this `condition_id`."""
        return cls(condition_id=condition_id)


@dataclass(frozen=True, kw_only=True)
class AttributeMatch:
    """What an Attribute is to become."""

    value: object

    @classmethod
    def equal_to(cls, value: object) -> AttributeMatch:
        """Equal to this value of the Attribute's type; None: absent."""
        return cls(value=value)


@dataclass(frozen=True, kw_only=True)
class _LongPollOptions:
    request_timeout: float | timedelta | None = None

    def __post_init__(self) -> None:
        if self.request_timeout is not None:
            object.__setattr__(self, "request_timeout", seconds(self.request_timeout, "request_timeout"))


class WaitForStepCompletionOptions(_LongPollOptions):
    """How long to wait, in seconds or as a timedelta; None waits without end."""


class WaitForAttributeOptions(_LongPollOptions):
    """How long to wait, in seconds or as a timedelta; None waits without end."""
