"""A Flow whose Step writes a row of the application's own inside the transaction that commits its result."""

import os
from pathlib import Path

from django.db import connection

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
    graceful_complete,
    register,
)
from tests.stories.flows import Hold, _wait_for_file

PAYMENTS = "CREATE TABLE IF NOT EXISTS story_payment (id bigserial, run_id uuid, attempt int)"
paid = Attribute("paid", int, default=0)


def sign_of(hold: Hold, attempt: int) -> Path:
    """The file in which an attempt writes its pid after it has written its row."""
    return Path(f"{hold.file}.attempt{attempt}")


class PayStep(Step[Hold]):
    """Pays, and waits for a file in the first attempt, in the middle of the transaction."""

    def execute(self, context: Context, input: Hold) -> StepDecision:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO story_payment (run_id, attempt) VALUES (%s, %s)", (context.run_id, context.attempt)
            )
        paid.set(context, paid.get(context) + 1)
        sign_of(input, context.attempt).write_text(f"{os.getpid()}\n")
        if context.attempt == 1:
            _wait_for_file(input)
        return graceful_complete(paid.get(context))

    def get_step_options(self) -> StepOptions:
        again = RetryPolicy(initial_interval=0.05, backoff_coefficient=1, maximum_attempts=5)
        return StepOptions(execute_atomic=True, execute_lock_attributes=(paid.lock(),), execute_retry=again)


class PaymentFlow(Flow[Hold]):
    """Pays once."""

    paid = paid

    def get_steps(self) -> StepList[Hold]:
        return StepList.start_step(PayStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.paid)


payment_flow = register(PaymentFlow())
