"""Waiting: spec section 5, each row and each rule."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from dexflows import (
    ConditionCombination,
    Context,
    RPCResult,
    StepExecutionId,
    StepMovement,
    Timer,
    TimerId,
    Wait,
    dead_end,
    go_to,
    graceful_complete,
)
from dexflows.channel import ChannelCondition
from dexflows.engine import sweeps
from dexflows.errors import FlowNotActiveOrNotFoundError, InvalidRequestError
from dexflows.registry import registry
from tests.engine.kit import (
    Lab,
    Pause,
    end_lease,
    in_thread,
    messages,
    move_clock,
    result,
    rows,
    step,
    steps,
    sweep,
    wait_until_blocked,
)
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

ch, cm, anything = LabFlow.ch, LabFlow.cm, LabFlow.anything
DAY = timedelta(days=1)


class Waiting:
    """A Flow whose start Step waits as the test says, and what its `execute` saw."""

    def __init__(self, lab: Lab, wait: Callable[[], Wait] | Wait, *more: LabStep, **options: Any) -> None:
        self.lab = lab
        self.seen: list[dict[str, Any]] = []
        self.step = WaitingLabStep("W", self._execute, lambda c, i: wait() if callable(wait) else wait, **options)
        lab.define(self.step, *more)
        self.run_id: UUID = lab.start()
        lab.run_all()

    def _execute(self, context: Context, input: str) -> Any:
        self.seen.append({"ch": ch.results(context), "x": cm.results(context, "x"), "fired": context.has_timer_fired()})
        return dead_end()

    @property
    def state(self) -> str:
        return str(step(self.run_id, "W-1"))

    def publish(self, *values: int) -> None:
        self.lab.client.publish("flow", ch, *values)
        self.lab.run_all()

    def sweep(self) -> None:
        for key in sweep():
            self.lab.run(key)


def test_a_wait_for_one_message_ends_when_it_comes(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.until(ch.for_one()))
    assert waiting.state == "WAITING"
    assert lab.bell.names() == []
    waiting.publish(7)
    assert waiting.seen == [{"ch": [7], "x": [], "fired": False}]
    assert messages(waiting.run_id) == []


def test_a_wait_that_holds_already_goes_on_in_place(lab: Lab) -> None:
    def execute(context: Context, input: str) -> Any:
        return graceful_complete(ch.results(context))

    first = LabStep("First", lambda c, i: (ch.publish(c, 1, 2), go_to(second, ""))[1])
    second = WaitingLabStep("Second", execute, lambda c, i: Wait.until(ch.for_n(2)))
    lab.define(first, second)
    lab.start()
    (key,) = lab.bell.take()
    assert lab.run(key)
    assert lab.bell.names() == []
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [1, 2]


@pytest.mark.parametrize(
    ("condition", "enough", "queued", "taken"),
    [
        (ch.for_one(), 1, [1, 2, 3], [1]),
        (ch.for_n(2), 2, [1, 2, 3], [1, 2]),
        (ch.at_least(2), 2, [1, 2, 3], [1, 2, 3]),
        (ch.at_least(0), 0, [1, 2, 3], [1, 2, 3]),
        (ch.at_most(2), 0, [1, 2, 3], [1, 2]),
        (ch.at_most(5), 0, [1, 2, 3], [1, 2, 3]),
        (ch.for_range(1, 2), 1, [1, 2, 3], [1, 2]),
        (ch.for_range(2, 9), 2, [1, 2, 3], [1, 2, 3]),
        (ch.for_range(0, 1), 0, [], []),
    ],
)
def test_what_a_condition_needs_and_what_it_takes(
    lab: Lab, condition: ChannelCondition, enough: int, queued: list[int], taken: list[int]
) -> None:
    """Waits for one message less than enough at first, then for what is queued when `wait_for` runs."""
    seen: list[list[int]] = []
    step_of = WaitingLabStep(
        "W", lambda c, i: (seen.append(ch.results(c)), dead_end())[1], lambda c, i: Wait.until(condition)
    )
    lab.define(step_of, start=False)
    run_id = lab.start()
    if enough:
        if enough > 1:
            lab.client.publish("flow", ch, *range(enough - 1))
        (key,) = lab.create(step_of)
        lab.run(key)
        assert step(run_id, "W-1") == "WAITING", f"{enough - 1} are not enough"
        lab.cancel_all(step_of)
        rows("DELETE FROM dexflows_channel_message")
    if queued:
        lab.client.publish("flow", ch, *queued)
    (key,) = lab.create(step_of)
    lab.run(key)
    assert seen == [taken]
    assert messages(run_id) == queued[len(taken) :]


def test_only_the_winner_takes_messages(lab: Lab) -> None:
    wait = Wait.any_of(cm.for_one("x"), ch.for_n(2))
    waiting = Waiting(lab, wait)
    waiting.publish(1)
    assert waiting.state == "WAITING"
    lab.client.publish("flow", cm, "x", "now")
    lab.run_all()
    assert waiting.seen == [{"ch": [], "x": ["now"], "fired": False}]
    assert messages(waiting.run_id) == [1]


def test_all_of_takes_nothing_until_all_hold(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.all_of(ch.for_one(), cm.for_one("x")))
    waiting.publish(1)
    assert (waiting.state, messages(waiting.run_id)) == ("WAITING", [1])
    lab.client.publish("flow", cm, "y", "another instance")
    assert waiting.state == "WAITING"
    lab.client.publish("flow", cm, "x", "now")
    lab.run_all()
    assert waiting.seen == [{"ch": [1], "x": ["now"], "fired": False}]
    assert messages(waiting.run_id, "cm", "y") == ["another instance"]


@pytest.mark.parametrize(
    ("second", "taken"),
    [(ch.for_n(2), [1, 2, 3]), (ch.at_least(2), [1, 2, 3, 4, 5]), (ch.for_range(2, 3), [1, 2, 3, 4])],
)
def test_two_conditions_on_one_channel_need_the_sum(lab: Lab, second: ChannelCondition, taken: list[int]) -> None:
    waiting = Waiting(lab, Wait.all_of(ch.for_one(), second))
    waiting.publish(1, 2)
    assert (waiting.state, messages(waiting.run_id)) == ("WAITING", [1, 2])
    waiting.publish(3, 4, 5)
    assert waiting.seen == [{"ch": taken, "x": [], "fired": False}]
    assert messages(waiting.run_id) == [1, 2, 3, 4, 5][len(taken) :]


@pytest.mark.parametrize(
    ("conditions", "winner"),
    [
        ((ch.for_one(), Timer.by_duration(0)), {"ch": [], "x": [], "fired": True}),
        ((ch.for_one(), Timer.by_duration(DAY)), {"ch": [1], "x": [], "fired": False}),
        ((cm.for_one("x"), ch.for_one()), {"ch": [], "x": ["a"], "fired": False}),
        ((ch.for_one(), cm.for_one("x")), {"ch": [1], "x": [], "fired": False}),
    ],
)
def test_any_of_prefers_timers_and_then_the_order_of_its_arguments(
    lab: Lab, conditions: tuple[Any, ...], winner: dict[str, Any]
) -> None:
    def wait() -> Wait:
        return Wait.any_of(*conditions)

    first = LabStep("First", lambda c, i: (ch.publish(c, 1), cm.publish(c, "x", "a"), go_to(second, ""))[2])
    seen: list[Any] = []
    second = WaitingLabStep(
        "W",
        lambda c, i: (
            seen.append({"ch": ch.results(c), "x": cm.results(c, "x"), "fired": c.has_timer_fired()}),
            dead_end(),
        )[1],
        lambda c, i: wait(),
    )
    lab.define(first, second)
    lab.start()
    lab.run_all()
    assert seen == [winner]


def test_the_first_combination_that_holds_wins(lab: Lab) -> None:
    one, two = ch.for_one(condition_id="one"), cm.for_one("x", condition_id="two")
    late = Timer.by_duration(DAY, condition_id="late")
    wait = Wait.any_combination_of(
        ConditionCombination.of(one, two), ConditionCombination.of(one, late), ConditionCombination.of(two, late)
    )
    waiting = Waiting(lab, wait)
    waiting.publish(1)
    assert waiting.state == "WAITING"
    move_clock(2 * DAY.total_seconds())
    waiting.sweep()
    assert waiting.seen == [{"ch": [1], "x": [], "fired": True}]


def test_a_combination_takes_all_of_its_own_and_nothing_else(lab: Lab) -> None:
    one, two = ch.for_one(condition_id="one"), cm.for_one("x", condition_id="two")
    three = ch.for_n(3, condition_id="three")
    waiting = Waiting(lab, Wait.any_combination_of(ConditionCombination.of(three), ConditionCombination.of(one, two)))
    waiting.publish(1, 2)
    lab.client.publish("flow", cm, "x", "a")
    lab.run_all()
    assert waiting.seen == [{"ch": [1], "x": ["a"], "fired": False}]
    assert messages(waiting.run_id) == [2]


@pytest.mark.parametrize("value", [None, "", 0, False, []])
def test_falsy_values_are_real_messages(lab: Lab, value: Any) -> None:
    """FLW-03."""
    seen: list[Any] = []
    waiter = WaitingLabStep(
        "W",
        lambda c, i: (seen.append((anything.results(c), c.has_timer_fired(1))), dead_end())[1],
        lambda c, i: Wait.any_of(anything.for_one(), Timer.by_duration(DAY)),
    )
    lab.define(waiter)
    lab.start()
    lab.run_all()
    lab.client.publish("flow", anything, value)
    lab.run_all()
    assert seen == [([value], False)]
    assert type(seen[0][0][0]) is type(value)


def test_a_timer_fires_when_it_is_due_and_not_before(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.until(Timer.by_duration(60)))
    move_clock(59)
    waiting.sweep()
    assert waiting.state == "WAITING"
    move_clock(61)
    waiting.sweep()
    assert waiting.seen == [{"ch": [], "x": [], "fired": True}]


def test_an_overdue_timer_fires_once_after_an_outage(lab: Lab) -> None:
    """TMR-02."""
    waiting = Waiting(lab, Wait.until(Timer.by_duration(60)))
    move_clock(86_400)
    (key,) = sweep()
    assert sweep() == [], "the sweep's own mark keeps others away for a while"
    lab.run(key)
    lab.run(key)
    assert len(waiting.seen) == 1


@pytest.mark.parametrize("duration", [0, 0.001, 100 * 365 * 86_400])
def test_extreme_durations_are_timers(lab: Lab, duration: float) -> None:
    waiting = Waiting(lab, Wait.until(Timer.by_duration(duration)))
    move_clock(101 * 365.25 * 86_400)
    waiting.sweep()
    assert waiting.seen == [{"ch": [], "x": [], "fired": True}]


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), "5m", True, timedelta(days=-1)])
def test_other_durations_are_refused(duration: Any) -> None:
    with pytest.raises(ValueError, match="duration of a Timer"):
        Timer.by_duration(duration)


def test_a_wait_for_a_timer_and_a_message_waits_for_both(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.all_of(Timer.by_duration(60), Timer.by_duration(120), ch.for_one()))
    move_clock(61)
    waiting.sweep()
    assert waiting.state == "WAITING"
    assert step(waiting.run_id, "W-1", "extract(epoch FROM due_at - dexflows_now()) BETWEEN 57 AND 60")
    move_clock(121)
    waiting.sweep()
    assert step(waiting.run_id, "W-1", "due_at") is None, "no timer is left"
    waiting.publish(1)
    assert waiting.seen == [{"ch": [1], "x": [], "fired": True}]


def test_a_message_after_the_deadline_loses_and_stays_though_nobody_swept(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(60)))
    move_clock(61)
    waiting.publish(1)
    assert waiting.seen == [{"ch": [], "x": [], "fired": True}]
    assert messages(waiting.run_id) == [1]


def test_a_message_before_the_deadline_wins_though_it_is_executed_later(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(60)))
    lab.client.publish("flow", ch, 1)
    move_clock(61)
    lab.run_all()
    assert waiting.seen == [{"ch": [1], "x": [], "fired": False}]


def test_the_decision_is_the_same_in_every_attempt(lab: Lab) -> None:
    seen: list[Any] = []

    def execute(context: Context, input: str) -> Any:
        seen.append((context.attempt, ch.results(context), context.has_timer_fired(1)))
        if context.attempt < 3:
            raise RuntimeError("again")
        return dead_end()

    waiter = WaitingLabStep("W", execute, lambda c, i: Wait.any_of(ch.for_one(), Timer.by_duration(60)))
    lab.define(waiter)
    lab.start()
    lab.run_all()
    lab.client.publish("flow", ch, 1)
    lab.run_all()
    for offset in (3600, 7200):
        move_clock(offset)
        for key in sweep():
            lab.run(key)
    assert seen == [(1, [1], False), (2, [1], False), (3, [1], False)]


def test_has_timer_fired_names_the_condition_by_its_index(lab: Lab) -> None:
    answers: list[Any] = []

    def execute(context: Context, input: str) -> Any:
        answers.append([context.has_timer_fired(i) for i in (1, 2)])
        with pytest.raises(InvalidRequestError, match=r"indices \[1, 2\], not 0"):
            context.has_timer_fired(0)
        return dead_end()

    wait = Wait.any_of(ch.for_one(), Timer.by_duration(60), Timer.by_duration(DAY))
    lab.define(WaitingLabStep("W", execute, lambda c, i: wait))
    lab.start()
    lab.run_all()
    move_clock(61)
    for key in sweep():
        lab.run(key)
    assert answers == [[True, False]]


def test_each_message_goes_to_exactly_one_waiter_in_the_order_they_began_to_wait(lab: Lab) -> None:
    seen: list[Any] = []
    waiter = WaitingLabStep(
        "W",
        lambda c, i: (seen.append((c.step_execution_id, ch.results(c))), dead_end())[1],
        lambda c, i: Wait.until(ch.for_one()),
    )
    lab.define(waiter, start=False)
    run_id = lab.start()
    for key in reversed(lab.create(waiter, waiter, waiter)):
        lab.run(key)
    lab.client.publish("flow", ch, 10, 20)
    lab.run_all()
    assert sorted(seen) == [("W-2", [20]), ("W-3", [10])]
    lab.client.publish("flow", ch, 30)
    lab.run_all()
    assert seen[-1] == ("W-1", [30])
    assert messages(run_id) == []


def test_a_waiter_that_needs_more_does_not_hold_up_those_behind_it(lab: Lab) -> None:
    seen: list[Any] = []
    patient, modest = (
        WaitingLabStep(
            name,
            lambda c, i: (seen.append((c.step_execution_id, ch.results(c))), dead_end())[1],
            lambda c, i: Wait.until(ch.for_n(int(i))),
        )
        for name in ("Patient", "Modest")
    )
    lab.define(patient, modest, start=False)
    lab.start()
    for key in lab.create(StepMovement.of(patient, "3"), StepMovement.of(modest, "1"), StepMovement.of(modest, "1")):
        lab.run(key)
    lab.client.publish("flow", ch, 1, 2)
    lab.run_all()
    assert sorted(seen) == [("Modest-1", [1]), ("Modest-2", [2])]
    lab.client.publish("flow", ch, 3, 4, 5)
    lab.run_all()
    assert seen[-1] == ("Patient-1", [3, 4, 5])


def test_two_publishers_and_a_waiter_at_one_moment_lose_nothing(lab: Lab) -> None:
    """The publisher commits while the waiter's settlement waits for the run's row."""
    waiter = WaitingLabStep("W", lambda c, i: graceful_complete(ch.results(c)), lambda c, i: Wait.until(ch.for_n(2)))
    lab.define(waiter)
    lab.start()
    (key,) = lab.bell.take()
    from django.db import transaction

    with transaction.atomic():
        lab.client.publish("flow", ch, 1)
        running = in_thread(lab.run, key)
        wait_until_blocked("dexflows_settle_wait")
        late = in_thread(lab.client.publish, "flow", ch, 2)
        wait_until_blocked("dexflows_send")
    result(late)
    result(running)
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [1, 2]


def test_step_execution_locals_are_kept_over_the_wait(lab: Lab) -> None:
    def wait_for(context: Context, input: str) -> Wait:
        context.set_step_execution_local("seen", input + "!")
        return Wait.until(ch.for_one())

    lab.define(WaitingLabStep("W", lambda c, i: graceful_complete(c.get_step_execution_local("seen", str)), wait_for))
    lab.start(input="hello")
    lab.run_all()
    lab.client.publish("flow", ch, 1)
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "hello!"


def test_what_wait_for_buffered_is_committed_when_the_wait_begins(lab: Lab) -> None:
    def wait_for(context: Context, input: str) -> Wait:
        LabFlow.note.set(context, "waiting")
        cm.publish(context, "out", "hello")
        context.record_event("BEGAN", 1)
        return Wait.until(ch.for_one())

    lab.define(WaitingLabStep("W", None, wait_for))
    run_id = lab.start()
    lab.run_all()
    assert lab.client.get_attribute("flow", LabFlow.note) == "waiting"
    assert messages(run_id, "cm", "out") == ["hello"]
    assert rows("SELECT count(*) FROM dexflows_event WHERE run_id = %s AND kind = 'BEGAN'", run_id) == [(1,)]


def test_locks_of_wait_for_are_free_while_it_waits(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.until(ch.for_one()), wait_for_lock_attributes=(LabFlow.c.lock(),))
    assert waiting.state == "WAITING"
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


def test_execute_with_locks_waits_for_them_after_the_message(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.until(ch.for_one()), execute_lock_attributes=(LabFlow.c.lock(),))
    waiting.publish(5)
    assert waiting.seen == [{"ch": [5], "x": [], "fired": False}]


def test_a_closed_run_waits_for_nothing(lab: Lab) -> None:
    waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(60)))
    lab.client.stop_flow("flow")
    move_clock(61)
    assert sweep() == []
    with pytest.raises(FlowNotActiveOrNotFoundError, match="CANCELED"):
        lab.client.publish("flow", ch, 1)
    assert waiting.seen == []


def test_a_canceled_wait_takes_no_message_and_its_timer_is_gone(lab: Lab) -> None:
    """FLW-05."""
    waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(60)))
    lab.cancel_all(waiting.step)
    move_clock(61)
    assert sweep() == []
    waiting.publish(1)
    assert (waiting.seen, messages(waiting.run_id)) == ([], [1])


def test_an_instance_of_a_map_is_a_queue_of_its_own(lab: Lab) -> None:
    waiter = WaitingLabStep("W", lambda c, i: graceful_complete(cm.results(c, "x")), lambda c, i: wait)
    wait = Wait.until(cm.for_one("x"))
    lab.define(waiter, start=False)
    run_id = lab.start()
    lab.client.publish("flow", cm, "y", "of y")
    lab.run(lab.create(waiter)[0])
    lab.client.publish("flow", cm, "y", "of y, too")
    assert (step(run_id, "W-1"), lab.bell.names()) == ("WAITING", [])
    lab.client.publish("flow", cm, "x", "of x")
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(list[str]) == ["of x"]
    assert messages(run_id, "cm", "y") == ["of y", "of y, too"]


@pytest.mark.parametrize("how", ["decision", "siblings", "rpc"])
def test_who_is_canceled_takes_no_message_that_the_same_commit_publishes(lab: Lab, how: str) -> None:
    waiter = WaitingLabStep("W", None, lambda c, i: Wait.until(ch.for_one()))
    heir = WaitingLabStep("Heir", lambda c, i: graceful_complete(ch.results(c)), lambda c, i: Wait.until(ch.for_one()))

    def hand_over(context: Context, input: str) -> Any:
        ch.publish(context, 1)
        decision = go_to(heir, "")
        return (
            decision.with_canceling_steps(waiter)
            if how == "decision"
            else decision.with_canceling_sibling_steps(waiter)
        )

    def call(context: Context) -> RPCResult[str]:
        ch.publish(context, 1)
        return RPCResult("handed over", next_steps=(StepMovement.of(heir, ""),), canceling_steps=(waiter,))

    giver = LabStep("Giver", hand_over)
    lab.define(waiter, heir, giver)
    run_id = lab.start()
    lab.run_all()
    if how == "rpc":
        lab.flow.on_call = call
        lab.client.invoke_rpc(lab.flow.call, "flow")
    else:
        lab.run(lab.create(giver)[0])
    lab.run_all()
    assert (step(run_id, "W-1"), step(run_id, "Heir-1")) == ("CANCELED", "COMPLETED")
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [1]


@pytest.mark.parametrize("state", ["CANCELED", "BACKOFF"])
def test_a_wait_for_that_is_not_current_any_more_begins_no_wait(lab: Lab, state: str) -> None:
    standing = Pause()

    def wait_for(context: Context, input: str) -> Wait:
        standing.here()
        ch.publish(context, 1)
        return Wait.until(Timer.by_duration(0))

    waiter = WaitingLabStep("W", None, wait_for)
    lab.define(waiter)
    run_id = lab.start()
    running = in_thread(lab.run_all)
    with standing.reached():
        if state == "CANCELED":
            lab.cancel_all(waiter)
        else:
            end_lease(run_id, "W-1")
            assert lab.rescue(run_id, "W-1")
    result(running)
    assert (step(run_id, "W-1"), step(run_id, "W-1", "wait"), messages(run_id)) == (state, None, [])


def test_a_second_wait_is_not_ended_by_the_timer_of_the_first(lab: Lab) -> None:
    """FLW-05: a wait of a second that a message ends, then one of an hour."""

    def execute(context: Context, input: str) -> Any:
        return graceful_complete("fired") if context.has_timer_fired() else go_to(waiter, "3600")

    waiter = WaitingLabStep("W", execute, lambda c, i: Wait.any_of(ch.for_one(), Timer.by_duration(float(i))))
    lab.define(waiter)
    run_id = lab.start(input="1")
    lab.run_all()
    lab.client.publish("flow", ch, 1)
    lab.run_all()
    move_clock(5)
    for key in sweep():
        lab.run(key)
    assert step(run_id, "W-2") == "WAITING"
    move_clock(3606)
    for key in sweep():
        lab.run(key)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "fired"


def test_a_due_wait_that_no_code_knows_is_parked_and_goes_on_when_some_does(lab: Lab) -> None:
    """BRK-11 for a timer."""
    waiting = Waiting(lab, Wait.until(Timer.by_duration(60)))
    move_clock(61)
    (key,) = sweep()
    with registry.isolated():
        assert not lab.run(key)
    assert waiting.state == "WAITING"
    assert "not known" in step(waiting.run_id, "W-1", "parked_reason")
    assert sweep() == []
    assert sweeps.ring_parked(10) == 1
    lab.run_all()
    assert waiting.seen == [{"ch": [], "x": [], "fired": True}]


class TestSkipping:
    """skip_timer."""

    def test_a_skipped_timer_fires_at_once(self, lab: Lab) -> None:
        waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(DAY)))
        lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(1))
        lab.run_all()
        assert waiting.seen == [{"ch": [], "x": [], "fired": True}]

    def test_a_timer_is_named_by_its_condition_id(self, lab: Lab) -> None:
        waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(DAY, condition_id="deadline")))
        lab.client.skip_timer("flow", StepExecutionId("W", 1), TimerId.by_condition_id("deadline"))
        lab.run_all()
        assert waiting.seen[0]["fired"]

    def test_skipping_one_of_all_leaves_the_others(self, lab: Lab) -> None:
        waiting = Waiting(lab, Wait.all_of(Timer.by_duration(DAY), ch.for_one()))
        lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(0))
        assert (waiting.state, lab.bell.names()) == ("WAITING", [])
        waiting.publish(1)
        assert waiting.seen == [{"ch": [1], "x": [], "fired": True}]

    @pytest.mark.parametrize("timer", [TimerId.by_condition_index(0), TimerId.by_condition_id("t")])
    @pytest.mark.parametrize("created", [True, False])
    def test_a_skip_before_the_wait_is_remembered(self, lab: Lab, timer: TimerId, created: bool) -> None:
        wait = Wait.until(Timer.by_duration(DAY, condition_id="t"))
        waiter = WaitingLabStep("W", lambda c, i: graceful_complete(c.has_timer_fired()), lambda c, i: wait)
        lab.define(waiter, start=False)
        lab.start()
        keys = lab.create(waiter) if created else []
        lab.client.skip_timer("flow", StepExecutionId("W"), timer)
        for key in keys or lab.create(waiter):
            lab.run(key)
        assert lab.client.wait_for_flow("flow", 0).single_output(bool) is True
        assert rows("SELECT * FROM dexflows_timer_skip") == []

    def test_a_remembered_skip_is_of_that_execution_only(self, lab: Lab) -> None:
        wait = Wait.until(Timer.by_duration(DAY))
        first, other = (WaitingLabStep(name, None, lambda c, i: wait) for name in ("W", "V"))
        lab.define(first, other, start=False)
        run_id = lab.start()
        lab.client.skip_timer("flow", StepExecutionId("W", 2), TimerId.by_condition_index(0))
        for key in lab.create(first, first, other):
            lab.run(key)
        assert steps(run_id) == {"W-1": "WAITING", "W-2": "COMPLETED", "V-1": "WAITING"}

    def test_a_skip_after_the_wait_does_nothing(self, lab: Lab) -> None:
        waiting = Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(DAY)))
        waiting.publish(1)
        lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(1))
        assert waiting.seen == [{"ch": [1], "x": [], "fired": False}]
        assert rows("SELECT * FROM dexflows_timer_skip") == []

    def test_an_unknown_timer_is_refused_and_the_known_ones_are_named(self, lab: Lab) -> None:
        Waiting(lab, Wait.any_of(ch.for_one(), Timer.by_duration(DAY, condition_id="deadline")))
        with pytest.raises(InvalidRequestError, match="its timers: 1 deadline"):
            lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(0))

    @pytest.mark.parametrize(
        ("named", "timer"),
        [
            (StepExecutionId("W", 2**31), TimerId.by_condition_index(0)),
            (StepExecutionId("W\x00"), TimerId.by_condition_index(0)),
            (StepExecutionId("W\ud800"), TimerId.by_condition_index(0)),
            (StepExecutionId("W" * 256), TimerId.by_condition_index(0)),
            ("W-1", TimerId.by_condition_index(0)),
            (StepExecutionId("W"), 0),
        ],
    )
    def test_what_can_name_no_timer_is_refused(self, lab: Lab, named: Any, timer: Any) -> None:
        lab.define(start=False)
        lab.start()
        with pytest.raises(InvalidRequestError, match=r"named by|can be no"):
            lab.client.skip_timer("flow", named, timer)

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"index": 0, "condition_id": "t"},
            {"index": -1},
            {"index": 1_000},
            {"index": True},
            *({"condition_id": each} for each in ("", "x" * 256, "x\x00", "x\ud800", 5)),
        ],
    )
    def test_a_timer_id_names_one_timer_that_there_can_be(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="condition"):
            TimerId(**arguments)

    def test_a_step_type_that_the_flow_lacks_is_refused(self, lab: Lab) -> None:
        Waiting(lab, Wait.until(ch.for_one()))
        with pytest.raises(InvalidRequestError, match="is a LabFlow, which has no Step 'Typo'"):
            lab.client.skip_timer("flow", StepExecutionId("Typo"), TimerId.by_condition_index(0))
        assert rows("SELECT * FROM dexflows_timer_skip") == []

    def test_a_closed_or_missing_run_is_refused(self, lab: Lab) -> None:
        Waiting(lab, Wait.until(ch.for_one()))
        lab.client.stop_flow("flow")
        for flow_id in ("flow", "nowhere"):
            with pytest.raises(FlowNotActiveOrNotFoundError):
                lab.client.skip_timer(flow_id, StepExecutionId("W"), TimerId.by_condition_index(0))


def test_movements_may_name_a_waiting_step_with_options_of_its_own(lab: Lab) -> None:
    waiter = WaitingLabStep("W", lambda c, i: graceful_complete(ch.results(c)), lambda c, i: Wait.until(ch.for_one()))
    other = LabStep("Other", lambda c, i: go_to(waiter, "", waiter.options))
    lab.define(other, waiter)
    lab.start()
    lab.run_all()
    lab.client.publish("flow", ch, 4)
    lab.run_all()
    assert StepMovement.of(waiter).options is None
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [4]
