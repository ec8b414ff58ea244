"""A payout that fails is not given up: it waits for an operator, who looks into it and says how it goes on.

The operator may correct the account and try again, leave the payout out, or abort. Until then the Flow costs nothing
but its rows, and its status says what it waits for.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from dexflows import (
    Attribute,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Wait,
    force_fail,
    go_to,
    graceful_complete,
    register,
)


def pay(account: str, amount: int, key: str) -> str:
    """Pay once for each key, and return the receipt; in real life a call over HTTP."""
    return f"{amount} to {account}"


@dataclass
class Payout:
    account: str
    amount: int


class Verdict(StrEnum):
    RETRY = "RETRY"
    SKIP = "SKIP"
    ABORT = "ABORT"


@dataclass
class Instruction:
    verdict: Verdict
    account: str | None = None


class PayOut(Step[Payout]):
    """Pays; the key is the Flow's, since a payout that was retried by hand may have been made before."""

    def execute(self, context: Context, input: Payout) -> StepDecision:
        receipt = pay(input.account, input.amount, context.flow_id)
        PayoutFlow.status.set(context, "paid")
        return graceful_complete(receipt)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=3)).on_execute_failure_proceed_to(AskOperator)


class AskOperator(Step[Payout]):
    """Says what is wrong, waits for an instruction and follows it."""

    def wait_for(self, context: Context, input: Payout) -> Wait:
        reason = context.recovery_error.detail if context.recovery_error else "unknown"
        PayoutFlow.status.set(context, f"needs an operator: {reason}")
        return Wait.until(PayoutFlow.instructions.for_one())

    def execute(self, context: Context, input: Payout) -> StepDecision:
        (instruction,) = PayoutFlow.instructions.results(context)
        PayoutFlow.status.set(context, f"operator says {instruction.verdict}")
        match instruction.verdict:
            case Verdict.RETRY:
                return go_to(PayOut, replace(input, account=instruction.account or input.account))
            case Verdict.SKIP:
                return graceful_complete("left out")
            case Verdict.ABORT:
                return force_fail("aborted by an operator")


class PayoutFlow(Flow[Payout]):
    status = Attribute("status", str, default="new")
    instructions = Channel("instructions", Instruction)

    def get_steps(self) -> StepList[Payout]:
        return StepList.start_step(PayOut()).other_steps(AskOperator())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.instructions)


payout_flow = register(PayoutFlow())
