"""A Flow that waits a second, 1,500 times, and then fails once."""

from __future__ import annotations

from typing import Any

import pytest

from dexflows import (
    Context,
    Flow,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Timer,
    Wait,
    go_to,
    graceful_complete,
)
from dexflows.client import Client
from dexflows.registry import registry
from dexflows.testing import VirtualFlows
from tests.faults.conftest import query

pytestmark = [pytest.mark.faults, pytest.mark.django_db]

LOOPS = 1_500


class LoopStep(Step[int]):
    """Waits a second each time; fails in the first attempt of the last one."""

    def wait_for(self, context: Context, input: int) -> Wait:
        return Wait.until(Timer.by_duration(1))

    def execute(self, context: Context, input: int) -> StepDecision:
        if input < LOOPS:
            return go_to(LoopStep, input + 1)
        if context.attempt == 1:
            raise RuntimeError("once")
        return graceful_complete(context.attempt)

    def get_step_options(self) -> StepOptions:
        return StepOptions(
            execute_retry=RetryPolicy(initial_interval=5, backoff_coefficient=1000, maximum_interval=1e6)
        )


class LoopFlow(Flow[int]):
    """One loop."""

    def get_steps(self) -> StepList[int]:
        return StepList.start_step(LoopStep())


def test_the_first_backoff_is_the_first_backoff(flows: VirtualFlows) -> None:
    """FLW-06."""
    with registry.isolated():
        flow: Any = registry.register(LoopFlow())
        Client().start_flow(flow, "loop", 1)
        begun = flows.now
        flows.run_until_idle()
        assert Client().wait_for_flow("loop", 0).single_output(int) == 2
    ((delay, attempt),) = query(
        "SELECT (data ->> 'delay')::float8, (data ->> 'attempt')::int FROM dexflows_event "
        "WHERE kind = 'STEP_ATTEMPT_FAILED'"
    )
    assert attempt == 1
    assert 0 <= delay <= 5
    passed = (flows.now - begun).total_seconds()
    assert passed == pytest.approx(LOOPS + delay, abs=0.1)
