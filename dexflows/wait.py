"""What a `wait_for` handler returns, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import msgspec

from dexflows.channel import ChannelCondition
from dexflows.flow_result import FlowResult, StoredResult
from dexflows.retry import seconds
from dexflows.sub_flow import SubFlow

__all__ = ["Condition", "ConditionCombination", "Timer", "Wait", "Waited"]

MAX_CONDITIONS = 1_000
MAX_CONDITION_ID = 255


@dataclass(frozen=True, kw_only=True)
class Timer:
    """Waits for a time that is counted from the commit of `wait_for`, by the database's clock."""

    seconds: float
    condition_id: str | None = None

    @classmethod
    def by_duration(cls, duration: timedelta | float, *, condition_id: str | None = None) -> Timer:
        """A timer that fires after a timedelta or number of seconds, 0 or more and at most a century."""
        return cls(seconds=seconds(duration, "the duration of a Timer"), condition_id=condition_id)


Condition: TypeAlias = Timer | ChannelCondition | SubFlow
_ORDER: tuple[type, ...] = (Timer, ChannelCondition, SubFlow)


@dataclass(frozen=True)
class ConditionCombination:
    """Conditions that must hold together; each has a `condition_id`."""

    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, *conditions: Condition) -> ConditionCombination:
        """A combination of conditions, of which each may be part of several combinations."""
        return cls(conditions)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a Step execution waits for before `execute` runs; made by its named constructors.

    `choices` are indices of `conditions`; the first choice whose conditions all hold ends the wait.
    """

    conditions: tuple[Condition, ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.conditions) > MAX_CONDITIONS:
            raise ValueError(f"a wait has at most {MAX_CONDITIONS} conditions, not {len(self.conditions)}")
        known: set[str] = set()
        for each in self.conditions:
            if not isinstance(each, _ORDER):
                raise TypeError(f"a condition is a Timer, a condition of a Channel or a SubFlow, not {each!r}")
            if each.condition_id is None:
                continue
            name = checked_condition_id(each.condition_id)
            if name in known:
                raise ValueError(f"two conditions have the condition_id {name!r}")
            known.add(name)

    @classmethod
    def skip_immediately(cls) -> Wait:
        """Wait for nothing: `execute` runs next."""
        return cls()

    @classmethod
    def until(cls, condition: Condition) -> Wait:
        """Wait for one condition."""
        return cls.all_of(condition)

    @classmethod
    def all_of(cls, *conditions: Condition) -> Wait:
        """Wait until all conditions hold; several on one Channel need the sum of their messages."""
        _refuse_none(conditions)
        return cls(conditions=conditions, choices=(tuple(range(len(conditions))),))

    @classmethod
    def any_of(cls, *conditions: Condition) -> Wait:
        """Wait until one condition holds: Timers come first, then Channels, then SubFlows, each in argument order."""
        _refuse_none(conditions)
        by_kind = ([i for i, each in enumerate(conditions) if isinstance(each, kind)] for kind in _ORDER)
        return cls(conditions=conditions, choices=tuple((i,) for kind in by_kind for i in kind))

    @classmethod
    def any_combination_of(cls, *combinations: ConditionCombination) -> Wait:
        """Wait until all conditions of one combination hold; the first such combination wins."""
        _refuse_none(combinations)
        for one in combinations:
            if not isinstance(one, ConditionCombination) or not all(
                isinstance(each, _ORDER) for each in one.conditions
            ):
                raise TypeError(f"a combination is ConditionCombination.of(condition, ...), not {one!r}")
        conditions: dict[str, Condition] = {}
        for each in (condition for combination in combinations for condition in combination.conditions):
            if each.condition_id is None:
                raise ValueError(f"each condition of a combination needs a condition_id, as {each!r} does")
            if conditions.setdefault(each.condition_id, each) != each:
                raise ValueError(f"two different conditions have the condition_id {each.condition_id!r}")
        places = {condition_id: i for i, condition_id in enumerate(conditions)}
        choices = [tuple(dict.fromkeys(places[c.condition_id or ""] for c in one.conditions)) for one in combinations]
        if not all(choices):
            raise ValueError("a combination needs at least one condition")
        return cls(conditions=tuple(conditions.values()), choices=tuple(choices))


def checked_condition_id(name: object) -> str:
    """The `condition_id` if it may be one, else ValueError."""
    if type(name) is not str or not 1 <= len(name) <= MAX_CONDITION_ID or not name.isprintable():
        raise ValueError(f"a condition_id is 1 to {MAX_CONDITION_ID} printable characters, not {name!r}")
    return name


def _refuse_none(given: Iterable[object]) -> None:
    if not tuple(given):
        raise ValueError("a wait needs at least one condition; Wait.skip_immediately() waits for nothing")


@dataclass(frozen=True, kw_only=True)
class Waited:
    """What a Step's wait came to: decided once, stored, and the same in each attempt of `execute`.

    `timers` says of each Timer's condition index whether it had fired, `messages` holds raw JSON by Channel name and
    instance.
    """

    timers: dict[int, bool] = field(default_factory=dict)
    messages: dict[tuple[str, str], list[msgspec.Raw]] = field(default_factory=dict)
    sub_flows: dict[int, FlowResult] = field(default_factory=dict)
    wait_for_failed: bool = False

    @classmethod
    def from_json(cls, raw: msgspec.Raw | bytes | str) -> Waited:
        """What `sql/evaluate.sql` stored."""
        stored = _stored.decode(raw)
        messages: dict[tuple[str, str], list[msgspec.Raw]] = {}
        for name, instance, values in stored.messages:
            messages.setdefault((name, instance), []).extend(values)
        return cls(
            timers=dict(stored.timers),
            messages=messages,
            sub_flows={index: FlowResult.of(result) for index, result in stored.sub_flows},
            wait_for_failed=stored.wait_for_failed,
        )


class _Stored(msgspec.Struct):
    timers: list[tuple[int, bool]] = []
    messages: list[tuple[str, str, list[msgspec.Raw]]] = []
    sub_flows: list[tuple[int, StoredResult]] = []
    wait_for_failed: bool = False


_stored = msgspec.json.Decoder(_Stored)
