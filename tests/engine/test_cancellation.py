"""A running handler can ask whether its result is still wanted."""

from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async

from dexflows import Context, StepDecision, StopFlowOptions, graceful_complete
from tests.engine.kit import Lab, Pause, end_lease, in_thread, result
from tests.flows_lab import AsyncLabStep, LabStep


def cancel(lab: Lab, step: LabStep) -> None:
    lab.flow.on_call = lambda context: lab.cancel(step)
    lab.client.invoke_rpc(lab.flow.call, "flow")


def stop(lab: Lab, step: LabStep) -> None:
    lab.client.stop_flow("flow", StopFlowOptions(reason="enough"))


class Asking:
    """A handler that asks before and after something happens."""

    def __init__(self) -> None:
        self.standing = Pause()
        self.answers: list[bool] = []

    def __call__(self, context: Context, input: str) -> StepDecision:
        self.answers.append(context.is_cancellation_requested())
        self.standing.here()
        self.answers.append(context.is_cancellation_requested())
        return graceful_complete("late")


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("end", [cancel, stop])
def test_a_running_handler_is_told_when_its_result_would_be_dropped(
    lab: Lab, end: Callable[[Lab, LabStep], None], atomic: bool
) -> None:
    asking = Asking()
    step = LabStep("Ask", asking, execute_atomic=atomic)
    lab.define(step)
    lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with asking.standing.reached():
        end(lab, step)
    result(running)
    assert asking.answers == [False, True]


def test_a_handler_that_nobody_ends_is_told_nothing(lab: Lab) -> None:
    asking = Asking()
    lab.define(LabStep("Ask", asking))
    lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with asking.standing.reached():
        lab.client.set_attribute("flow", lab.flow.note, "something else")
    result(running)
    assert asking.answers == [False, False]


def test_a_superseded_attempt_is_told_while_the_current_one_is_not(lab: Lab) -> None:
    asking = Asking()
    lab.define(LabStep("Ask", asking))
    run = lab.start()
    running = in_thread(lab.run, lab.bell.take()[0])
    with asking.standing.reached():
        end_lease(run, "Ask-1")
        assert lab.rescue(run, "Ask-1")
    result(running)
    assert asking.answers == [False, True]


def test_an_async_handler_asks_from_a_thread(lab: Lab) -> None:
    answers: list[bool] = []

    async def ask(context: Context, input: str) -> StepDecision:
        answers.append(await sync_to_async(context.is_cancellation_requested)())
        return graceful_complete("done")

    lab.define(AsyncLabStep("Ask", ask))
    lab.start()
    lab.run_all()
    assert answers == [False]
