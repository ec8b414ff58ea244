"""The Flow that is measured: ten trivial Steps, one after the other."""

from dexflows import Context, Flow, Step, StepDecision, StepList, go_to, graceful_complete, register

STEPS = 10


class AddOne(Step[int]):
    """Adds one and goes on, until ten have been added."""

    def execute(self, context: Context, input: int) -> StepDecision:
        value = input + 1
        return graceful_complete(value) if value == STEPS else go_to(AddOne, value)


class TenSteps(Flow[int]):
    """Ten Steps that keep nothing but their input."""

    def get_steps(self) -> StepList[int]:
        return StepList.start_step(AddOne())


ten_steps = register(TenSteps())
