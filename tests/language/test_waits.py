"""Waits are values; what cannot be waited for is refused where it is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dexflows import Channel, ChannelMap, ConditionCombination, FlowDefinitionError, Timer, Wait
from dexflows.errors import ValueMappingError

ch, cm = Channel("ch", int), ChannelMap("cm", str)
one, soon = ch.for_one(condition_id="one"), Timer.by_duration(1, condition_id="soon")
of = ConditionCombination.of


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Wait.all_of(), "at least one condition"),
        (lambda: Wait.any_of(), "at least one condition"),
        (lambda: Wait.any_combination_of(), "at least one condition"),
        (lambda: Wait.any_combination_of(of(one), of()), "at least one condition"),
        (lambda: Wait.any_combination_of(of(one, ch.for_one())), "needs a condition_id"),
        (lambda: Wait.any_combination_of(of(one), of(ch.for_n(2, condition_id="one"))), "two different conditions"),
        (lambda: Wait.all_of(one, Timer.by_duration(1, condition_id="one")), "two conditions have the condition_id"),
        (lambda: Wait.any_of(one, one), "two conditions have the condition_id"),
        (lambda: Wait.until(ch), "a condition is"),
        (lambda: Wait.any_combination_of(one), "a combination is"),
        (lambda: Wait.any_combination_of(of("one")), "a combination is"),
        (lambda: Wait.any_of(*[ch.for_one()] * 1_001), "at most 1000 conditions"),
        *((lambda bad=bad: Wait.until(ch.for_one(condition_id=bad)), "printable") for bad in ("", "x" * 256, "\n", 5)),
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(make: Callable[[], Wait], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        make()


@pytest.mark.parametrize("n", [-1, 1.0, True, "1", None, 1_000_001])
@pytest.mark.parametrize("condition", ["for_n", "at_least", "at_most"])
def test_a_number_of_messages_is_a_whole_one_that_can_be(condition: str, n: Any) -> None:
    for make in (getattr(ch, condition), lambda n: getattr(cm, condition)("x", n)):
        with pytest.raises(ValueError, match="a condition takes"):
            make(n)


@pytest.mark.parametrize(("low", "high"), [(3, 2), (0, 0), (-1, 2), (1, 1.5)])
def test_a_range_goes_upward(low: Any, high: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="a condition"):
        ch.for_range(low, high)


@pytest.mark.parametrize("instance", ["", "a/b", None, 5, "x\x00", "\ud800"])
def test_a_condition_of_a_map_names_an_instance(instance: Any) -> None:
    with pytest.raises((ValueMappingError, FlowDefinitionError)):
        cm.for_one(instance)


def test_a_condition_may_be_part_of_several_combinations() -> None:
    wait = Wait.any_combination_of(of(one, soon), of(soon, soon))
    assert (wait.conditions, wait.choices) == ((one, soon), ((0, 1), (1,)))
