"""A shopping cart is kept until nothing has been put into it for half an hour.

Each item starts the half hour anew. An item that comes in the very moment in which the cart is given up is not lost:
either it is refused because the cart is gone, or the cart is kept.
"""

from datetime import timedelta

from dexflows import (
    Attribute,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    Timer,
    Wait,
    force_complete_if_channels_empty,
    go_to,
    register,
    rpc,
)

KEPT_FOR = timedelta(minutes=30)


class KeepCart(Step[None]):
    """Waits for the end of the half hour, or for something that starts it anew."""

    def wait_for(self, context: Context, input: None) -> Wait:
        return Wait.any_of(Timer.by_duration(KEPT_FOR), CartFlow.touched.at_least(1))

    def execute(self, context: Context, input: None) -> StepDecision:
        if not context.has_timer_fired():
            return go_to(KeepCart)
        given_up = CartFlow.items.get(context)
        return force_complete_if_channels_empty(given_up, StepMovement.of(KeepCart), CartFlow.touched)


class CartFlow(Flow[None]):
    items = Attribute("items", list[str], default=[])
    touched = Channel("touched", str)

    def get_steps(self) -> StepList[None]:
        return StepList.start_step(KeepCart())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.items, self.touched)

    @rpc(lock_attributes=(items.lock(),))
    def put(self, context: Context, input: str) -> RPCResult[int]:
        """Put an item into the cart; the answer is how many there are."""
        items = [*(self.items.get(context) or []), input]
        self.items.set(context, items)
        self.touched.publish(context, input)
        return RPCResult(len(items))


cart_flow = register(CartFlow())
