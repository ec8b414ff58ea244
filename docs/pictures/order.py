"""An order whose courier does not answer, caught in the middle: what the README's picture shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db import connection, connections
from django.test.utils import override_settings

from dexflows import (
    Attribute,
    AttributeMap,
    Client,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    dead_end,
    go_to_many,
    graceful_complete,
    sql,
)
from dexflows.engine import executor
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.registry import registry

FLOW_ID = "order-1042"
AT_THE_BANK, PICTURE_TAKEN = threading.Event(), threading.Event()
PATIENCE = 120.0
status = Attribute("status", str, default="new")
payment = Attribute("payment", dict[str, str])
stock = AttributeMap("stock", int)


@dataclass
class Order:
    """What was ordered."""

    customer: str
    total: Decimal
    lines: dict[str, int]


class ReserveStock(Step[Order]):
    """Takes the goods off the shelf, then does the rest at once."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        status.set(context, "reserved")
        payment.set(context, {"method": "card", "state": "authorized"})
        for article, pieces in input.lines.items():
            stock.set(context, article, pieces)
        return go_to_many(*(StepMovement.of(step, input) for step in (ChargeCard, ApplyVoucher, BookCourier)))


class ChargeCard(Step[Order]):
    """Takes the money; the bank is slow today."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        AT_THE_BANK.set()
        PICTURE_TAKEN.wait(PATIENCE)
        status.set(context, "paid")
        return graceful_complete(input.total)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(payment.lock(),))


class ApplyVoucher(Step[Order]):
    """Gives back some of the money."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        return dead_end()

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(payment.lock(),))


class BookCourier(Step[Order]):
    """Orders the courier."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        raise ConnectionError("the courier's API answered 503 Service Unavailable")

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(initial_interval=3600, maximum_interval=3600, maximum_attempts=10))


class OrderFlow(Flow[Order]):
    """From the basket to the door."""

    status, payment, stock = status, payment, stock

    def get_steps(self) -> StepList[Order]:
        return StepList.start_step(ReserveStock()).other_steps(ChargeCard(), ApplyVoucher(), BookCourier())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.payment, self.stock)


order_flow = OrderFlow()


@contextmanager
def order_under_way() -> Iterator[str]:
    """Within the block one Step runs, one waits for its lock, one backs off, and one is done. Gives the run ID."""
    order = Order("ada@example.com", Decimal("129.90"), {"lamp": 1, "bulb-e27": 4})
    with registry.isolated(), override_settings(DEXFLOWS={"LEASE_SECONDS": 600.0}):
        registry.register(order_flow)
        turn_clock_back(48)
        run_id = Client().start_flow(order_flow, FLOW_ID, order)
        run(run_id, "ReserveStock", "celery@shop-1")
        turn_clock_back(46)
        bank = threading.Thread(target=run, args=(run_id, "ChargeCard", "celery@shop-2"), daemon=True)
        bank.start()
        try:
            assert AT_THE_BANK.wait(PATIENCE), "the card is not being charged"
            turn_clock_back(45)
            run(run_id, "ApplyVoucher", "celery@shop-1")
            run(run_id, "BookCourier", "celery@shop-1")
            set_clock_right()
            yield run_id
        finally:
            PICTURE_TAKEN.set()
            bank.join(PATIENCE)


def run(run_id: str, step_type: str, worker: str) -> None:
    """Run one Step execution as a worker of this name does."""
    key = StepKey(UUID(run_id), "OrderFlow", step_type, 1, "dexflows")
    executor.run(key, InlineWorker(worker))
    if threading.current_thread() is not threading.main_thread():
        connections.close_all()


def turn_clock_back(seconds: int) -> None:
    """Let the engine's clock be late, so that what follows seems to have happened so long ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION dexflows_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            f"$$ SELECT clock_timestamp() - interval '{int(seconds)} s' $$"
        )


def set_clock_right() -> None:
    """Let the engine's clock be the one that it is installed with."""
    with connection.cursor() as cursor:
        cursor.execute(sql.text("now"))
