"""Encoding the Step executions that are to be created."""

from dataclasses import replace

from dexflows.conf import conf
from dexflows.decision import StepMovement
from dexflows.engine.keys import StepPlan, plan_of
from dexflows.engine.outcomes import Movement
from dexflows.registry import FlowDefinition
from dexflows.states import StepMethod


def movement_of(flow: FlowDefinition, movement: StepMovement, run_queue: str) -> Movement:
    """Encode a movement. Raises InvalidStepResultError for a Step of another Flow, ValueMappingError for its input."""
    step = flow.resolve_step(movement.step)
    options = movement.options
    if options is not None:
        flow.check_options(options)
        recovery = flow.recovery_step(step, options)
        options = replace(options, recovery_step=recovery.step_type) if recovery else options
    plan = plan_of(flow, step) if options is None else StepPlan.of(flow, options)
    method = StepMethod.WAIT_FOR if step.has_wait_for else StepMethod.EXECUTE
    first = plan.methods[method]
    return Movement(
        step_type=step.step_type,
        queue=plan.step_options.worker_target or run_queue,
        method=method,
        input=step.input_codec.encode(movement.input, key=f"input of {step.step_type}", limit=conf().max_value_bytes),
        options=None if options is None else options.to_json(),
        plan=None if options is None else plan.json,
        locked=bool(first.locks.exclusive),
        timeout=first.allowed_seconds,
        durability=first.options.durability,
        load=first.load.json,
        pinned=plan.step_options.worker_target is not None,
    )
