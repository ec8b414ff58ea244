"""What the last failure of a handler leads to, where it does not fail the run."""

from typing import Any

from dexflows.engine.keys import StepPlan, plan_of
from dexflows.registry import FlowDefinition, StepDefinition
from dexflows.states import StepMethod, StepState, WaitForFailure


def instead_of_failing(
    flow: FlowDefinition, step: StepDefinition, plan: StepPlan, method: StepMethod
) -> dict[str, Any] | None:
    """The parts of a settlement's payload that come instead of failing the run; None when it fails."""
    options = plan.step_options
    if method is StepMethod.WAIT_FOR:
        if options.wait_for_failure is WaitForFailure.FAIL_FLOW:
            return None
        return {"state": StepState.QUEUED, "method": StepMethod.EXECUTE, "waited": {"wait_for_failed": True}}
    recovery = flow.recovery_step(step, options)
    if recovery is None:
        return None
    first = StepMethod.WAIT_FOR if recovery.has_wait_for else StepMethod.EXECUTE
    queue = plan_of(flow, recovery).step_options.worker_target
    return {"recover": {"step_type": recovery.step_type, "method": first} | ({"queue": queue} if queue else {})}
