"""Decisions are values that say what comes next."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dexflows import (
    Channel,
    StepMovement,
    StepOptions,
    dead_end,
    force_complete,
    force_complete_if_channels_empty,
    force_fail,
    go_to,
    go_to_many,
    graceful_complete,
)
from dexflows.decision import DecisionKind
from tests.language.flows import Work


def test_each_function_makes_its_kind_of_decision() -> None:
    step, options = Work(), StepOptions(execute_atomic=True)
    assert go_to(Work, "a").movements == (StepMovement(Work, "a", None),)
    assert go_to_many(StepMovement.of(Work), StepMovement.of(step, "b", options)).movements == (
        StepMovement(Work),
        StepMovement(step, "b", options),
    )
    assert graceful_complete(1).output == force_complete(1).output == 1
    assert force_fail("no stock").reason == "no stock"
    channel = Channel("ch", int)
    drained = force_complete_if_channels_empty(1, StepMovement.of(Work), channel)
    assert (drained.output, drained.movements, drained.channels) == (1, (StepMovement(Work),), (channel,))
    made = [go_to(Work), graceful_complete(), force_complete(), drained, force_fail(), dead_end()]
    assert [each.kind for each in made] == list(DecisionKind)
    with pytest.raises(ValueError, match="at least one"):
        go_to_many()
    with pytest.raises(ValueError, match="at least one Channel"):
        force_complete_if_channels_empty(1, StepMovement.of(Work))


@pytest.mark.parametrize(
    "decide",
    [
        lambda: go_to_many(Work),  # type: ignore[arg-type]
        lambda: force_complete_if_channels_empty(1, Channel("a", int), Channel("b", int)),  # type: ignore[arg-type]
        lambda: force_fail(RuntimeError("no")),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_movement_or_reason_is_refused_where_it_is_said(decide: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"named by StepMovement|is a text"):
        decide()


def test_cancellations_add_up_and_leave_the_first_decision_alone() -> None:
    step = Work()
    plain = dead_end()
    full = plain.with_canceling_steps(Work).with_canceling_steps(step).with_canceling_sibling_steps(step)
    assert (full.canceling_steps, full.canceling_sibling_steps) == ((Work, step), (step,))
    assert plain.canceling_steps == ()
