"""An order is too large to be taken without its manager's approval.

The manager is asked, and reminded after each day without an answer. The first answer decides; after three reminders
the order is dropped. An answer to an order that is decided already is refused.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.core.mail import send_mail

from dexflows import (
    Attribute,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    Timer,
    Wait,
    go_to,
    graceful_complete,
    register,
)

REMIND_AFTER = timedelta(days=1)
REMINDERS = 3


@dataclass
class Order:
    number: str
    total: int
    manager: str


class AskManager(Step[Order]):
    """Asks for the first time."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        send_mail(f"Please approve {input.number}", f"It is over {input.total} €.", None, [input.manager])
        return go_to(AwaitAnswer, input)


class AwaitAnswer(Step[Order]):
    """Waits for an answer or for the time of the next reminder, whichever comes first."""

    def wait_for(self, context: Context, input: Order) -> Wait:
        return Wait.any_of(ApprovalFlow.answers.for_one(), Timer.by_duration(REMIND_AFTER))

    def execute(self, context: Context, input: Order) -> StepDecision:
        for approved in ApprovalFlow.answers.results(context):
            return decided(context, "approved" if approved else "rejected")
        reminders = (ApprovalFlow.reminders.get(context) or 0) + 1
        if reminders > REMINDERS:
            return decided(context, "dropped")
        ApprovalFlow.reminders.set(context, reminders)
        send_mail(f"Reminder {reminders}: {input.number} waits for you", "", None, [input.manager])
        return go_to(AwaitAnswer, input)


def decided(context: Context, status: str) -> StepDecision:
    """Keep how it ended where it can be looked up, and end."""
    ApprovalFlow.status.set(context, status)
    return graceful_complete(status)


class ApprovalFlow(Flow[Order]):
    status = Attribute("status", str, default="waiting")
    reminders = Attribute("reminders", int, default=0)
    answers = Channel("answers", bool)

    def get_steps(self) -> StepList[Order]:
        return StepList.start_step(AskManager()).other_steps(AwaitAnswer())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.reminders, self.answers)


approval_flow = register(ApprovalFlow())
