"""Money goes from an account of ours to one at a partner bank; where that fails, it comes back.

Our own rows change in the commit of the Step that changes them, so a crash never takes money twice. The partner knows
each transfer by its Flow ID, so it can be asked again. When it does not take the money, the transfer is withdrawn
there first, for its answer may only have been lost; then the money is put back, however long that takes.
"""

from dataclasses import dataclass

from django.db.models import F

from dexflows import (
    Attribute,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    force_fail,
    go_to,
    graceful_complete,
    register,
)
from tests.stories.examples.accounts import Account

UNTIL_IT_WORKS = RetryPolicy(total_duration=0)


class PartnerBank:
    """The other bank; in real life calls over HTTP. Both calls may be repeated."""

    def deposit(self, transfer: str, owner: str, amount: int) -> None:
        """Put money into an account there, unless this transfer was done or withdrawn before."""

    def withdraw_transfer(self, transfer: str) -> None:
        """Undo the transfer if it was done, and never do it again."""


partner = PartnerBank()


@dataclass
class Transfer:
    source: str
    target: str
    amount: int


class TakeMoney(Step[Transfer]):
    """Takes the money from our account, in the commit of this Step."""

    def execute(self, context: Context, input: Transfer) -> StepDecision:
        rich_enough = Account.objects.filter(owner=input.source, balance__gte=input.amount)
        if not rich_enough.update(balance=F("balance") - input.amount):
            return force_fail("the account does not have so much money")
        TransferFlow.status.set(context, "on its way")
        return go_to(Deposit, input)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_atomic=True)


class Deposit(Step[Transfer]):
    """Gives the money to the partner; after an hour of failures it is given back."""

    def execute(self, context: Context, input: Transfer) -> StepDecision:
        partner.deposit(context.flow_id, input.target, input.amount)
        TransferFlow.status.set(context, "done")
        return graceful_complete("done")

    def get_step_options(self) -> StepOptions:
        return StepOptions(
            execute_method_timeout=30, execute_retry=RetryPolicy(total_duration=3600)
        ).on_execute_failure_proceed_to(WithdrawTransfer)


class WithdrawTransfer(Step[Transfer]):
    """The first half of the compensation: the partner must not have the money, whatever it answered."""

    def execute(self, context: Context, input: Transfer) -> StepDecision:
        partner.withdraw_transfer(context.flow_id)
        if context.recovery_error is not None:
            TransferFlow.trouble.set(context, context.recovery_error.detail)
        return go_to(GiveBack, input)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=UNTIL_IT_WORKS)


class GiveBack(Step[Transfer]):
    """The second half: the money is in our account again, in the commit of this Step."""

    def execute(self, context: Context, input: Transfer) -> StepDecision:
        Account.objects.filter(owner=input.source).update(balance=F("balance") + input.amount)
        TransferFlow.status.set(context, "given back")
        return graceful_complete("given back")

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_atomic=True, execute_retry=UNTIL_IT_WORKS)


class TransferFlow(Flow[Transfer]):
    status = Attribute("status", str)
    trouble = Attribute("trouble", str)

    def get_steps(self) -> StepList[Transfer]:
        return StepList.start_step(TakeMoney()).other_steps(Deposit(), WithdrawTransfer(), GiveBack())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.trouble)


transfer_flow = register(TransferFlow())
