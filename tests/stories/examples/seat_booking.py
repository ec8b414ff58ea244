"""Seats are held for a quarter of an hour. When they are not paid by then they are free again.

The quarter of an hour is the timeout of the Flow, which does not fail at its end but tidies up. A payment that comes
later is refused, so nobody pays for seats that are gone.
"""

from dataclasses import dataclass
from datetime import timedelta

from dexflows import (
    Attribute,
    Channel,
    Client,
    Context,
    Flow,
    PersistenceSchema,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    Wait,
    force_complete,
    go_to,
    register,
)

HELD_FOR = timedelta(minutes=15)


class Theatre:
    """The theatre's own system; in real life calls over HTTP. Each may be repeated."""

    def hold(self, booking: str, seats: list[str]) -> None:
        """Keep seats for a booking."""

    def release(self, booking: str) -> None:
        """Let go what is held for a booking."""

    def sell(self, booking: str) -> None:
        """Sell what is held for a booking."""


theatre = Theatre()


@dataclass
class Payment:
    reference: str
    amount: int


def book(booking: str, seats: list[str]) -> None:
    """Hold seats, for a quarter of an hour from now."""
    Client().start_flow(booking_flow, booking, seats, StartFlowOptions(timeout=HELD_FOR))


class HoldSeats(Step[list[str]]):
    def execute(self, context: Context, input: list[str]) -> StepDecision:
        theatre.hold(context.flow_id, input)
        BookingFlow.status.set(context, "held")
        return go_to(SellSeats)


class SellSeats(Step[None]):
    """Waits for the payment; that this has an end is the Flow's business."""

    def wait_for(self, context: Context, input: None) -> Wait:
        return Wait.until(BookingFlow.payments.for_one())

    def execute(self, context: Context, input: None) -> StepDecision:
        theatre.sell(context.flow_id)
        BookingFlow.status.set(context, "sold")
        return force_complete("sold")


class BookingFlow(Flow[list[str]]):
    status = Attribute("status", str, default="new")
    payments = Channel("payments", Payment)

    def get_steps(self) -> StepList[list[str]]:
        return StepList.start_step(HoldSeats()).other_steps(SellSeats())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.payments)

    def handle_timeout(self, context: Context) -> StepDecision:
        """Let the seats go. Runs as a Step does, so it is tried again until the theatre answers."""
        theatre.release(context.flow_id)
        self.status.set(context, "released")
        return force_complete("released")


booking_flow = register(BookingFlow())
