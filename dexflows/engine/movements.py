"""Encoding the Step executions that are to be created."""

from dexflows.conf import conf
from dexflows.decision import StepMovement
from dexflows.engine.keys import StepPlan, plan_of
from dexflows.engine.outcomes import Movement
from dexflows.registry import FlowDefinition
from dexflows.states import StepMethod


def movement_of(flow: FlowDefinition, movement: StepMovement, run_queue: str) -> Movement:
    """Encode a movement. Raises InvalidStepResultError for a Step of another Flow, ValueMappingError for its input."""
    step = flow.resolve_step(movement.step)
    if movement.options is not None:
        flow.check_options(movement.options)
    plan = plan_of(flow, step) if movement.options is None else StepPlan.of(flow, movement.options)
    method = StepMethod.WAIT_FOR if step.has_wait_for else StepMethod.EXECUTE
    first = plan.methods[method]
    return Movement(
        step_type=step.step_type,
        queue=plan.step_options.worker_target or run_queue,
        method=method,
        input=step.input_codec.encode(movement.input, key=f"input of {step.step_type}", limit=conf().max_value_bytes),
        options=None if movement.options is None else movement.options.to_json(),
        plan=None if movement.options is None else plan.json,
        locked=bool(first.locks.exclusive),
        timeout=first.options.timeout,
        load=first.load.json,
    )
