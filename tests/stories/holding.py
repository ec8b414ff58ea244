"""A Flow with two boxes: one is kept locked for as long as a test wants, the other is free."""

from dataclasses import dataclass

from dexflows import (
    AttributeMap,
    Context,
    Flow,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    graceful_complete,
    register,
    rpc,
)
from tests.stories.flows import Hold, _wait_for_file, write_ledger

HELD, FREE = "held", "free"
boxes = AttributeMap("boxes", list[str])


def put_into(context: Context, box: str, thing: str) -> None:
    """Add a thing to a box."""
    boxes.set(context, box, [*(boxes.get(context, box) or []), thing])


def only(box: str) -> StepOptions:
    """Load and lock one box."""
    return StepOptions(
        execute_lock_attributes=(boxes.lock(box),), execute_load_attribute_map_instances=(boxes.load(box),)
    )


class KeepStep(Step[Hold]):
    """Locks one box until there is a file, then puts its own ID into it."""

    def execute(self, context: Context, input: Hold) -> StepDecision:
        write_ledger(context)
        _wait_for_file(input)
        put_into(context, HELD, context.step_execution_id)
        return graceful_complete()

    def get_step_options(self) -> StepOptions:
        return only(HELD)


class PassStep(Step[None]):
    """Puts its own ID into the other box."""

    def execute(self, context: Context, input: None) -> StepDecision:
        write_ledger(context)
        put_into(context, FREE, context.step_execution_id)
        return graceful_complete()

    def get_step_options(self) -> StepOptions:
        return only(FREE)


@dataclass
class Put:
    """What to put into which box."""

    box: str
    thing: str


class BoxFlow(Flow[Hold]):
    """Keeps the boxes."""

    boxes = boxes

    def get_steps(self) -> StepList[Hold]:
        return StepList.start_step(KeepStep()).other_steps(PassStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.boxes)

    @rpc
    def keep(self, context: Context, input: Hold) -> RPCResult[None]:
        """Add a Step that wants the locked box."""
        return RPCResult(None, next_steps=(StepMovement.of(KeepStep, input),))

    @rpc
    def go_past(self, context: Context) -> RPCResult[None]:
        """Add a Step that wants the other box."""
        return RPCResult(None, next_steps=(StepMovement.of(PassStep, None),))

    @rpc
    def put(self, context: Context, input: Put) -> RPCResult[int]:
        """Put a thing into a box that the caller loads and locks; says how full it is."""
        put_into(context, input.box, input.thing)
        return RPCResult(len(boxes.get(context, input.box) or []))

    @rpc(load_attribute_maps=(boxes,))
    def look(self, context: Context) -> RPCResult[int]:
        """How many boxes there are; needs no lock."""
        return RPCResult(boxes.get_map_size(context))


box_flow = register(BoxFlow())
