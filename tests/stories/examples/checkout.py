"""A shop's checkout answers as soon as the goods are reserved; all that follows goes on behind the answer.

The request waits for one Step of the Flow, at most three seconds, and holds no database connection meanwhile. Who has
to wait longer is told to come back, and a second click finds the Flow of the first.
"""

from django.http import HttpRequest, JsonResponse

from dexflows import (
    Attribute,
    Client,
    Context,
    Flow,
    LongPollTimeoutError,
    PersistenceSchema,
    StartFlowOptions,
    Step,
    StepDecision,
    StepExecutionId,
    StepList,
    WaitForStepCompletionOptions,
    force_fail,
    go_to,
    graceful_complete,
    register,
)

PATIENCE = WaitForStepCompletionOptions(request_timeout=3)


class Warehouse:
    """The warehouse; in real life calls over HTTP. Both may be repeated."""

    def reserve(self, order: str) -> bool:
        """Put the goods of an order aside; False when there are none left."""
        return True

    def ship(self, order: str) -> None:
        """Send what was put aside."""


warehouse = Warehouse()


def checkout(request: HttpRequest, order: str) -> JsonResponse:
    """A view: 201 when the goods are reserved, 409 when there are none left, 202 when that is not known yet."""
    client = Client()
    client.start_flow(checkout_flow, order, options=StartFlowOptions(ignore_already_started=True))
    try:
        client.wait_for_step_completion(order, StepExecutionId("ReserveGoods"), PATIENCE)
    except LongPollTimeoutError:
        return JsonResponse({"status": "pending"}, status=202)
    status = client.get_attribute(order, checkout_flow.status)
    return JsonResponse({"status": status}, status=409 if status == "sold out" else 201)


class ReserveGoods(Step[None]):
    """What the request waits for; a warehouse that is away is asked again, whoever waits or not."""

    def execute(self, context: Context, input: None) -> StepDecision:
        if not warehouse.reserve(context.flow_id):
            CheckoutFlow.status.set(context, "sold out")
            return force_fail("sold out")
        CheckoutFlow.status.set(context, "reserved")
        return go_to(ShipGoods)


class ShipGoods(Step[None]):
    def execute(self, context: Context, input: None) -> StepDecision:
        warehouse.ship(context.flow_id)
        CheckoutFlow.status.set(context, "shipped")
        return graceful_complete()


class CheckoutFlow(Flow[None]):
    status = Attribute("status", str, default="new")

    def get_steps(self) -> StepList[None]:
        return StepList.start_step(ReserveGoods()).other_steps(ShipGoods())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status)


checkout_flow = register(CheckoutFlow())
