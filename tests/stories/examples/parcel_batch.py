"""A batch of parcels is sent, each by a Flow of its own, and never more than three at the same time.

The parcels are messages in a Channel. Three lanes take one after the other, send it as a SubFlow, and end when there
is none left; the batch is done when the last lane has ended. A parcel that cannot be sent is noted and does not stop
the others.
"""

from datetime import timedelta

from dexflows import (
    AttributeMap,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    SubFlow,
    Timer,
    Wait,
    go_to,
    go_to_many,
    graceful_complete,
    register,
)

LANES = 3


def hand_over(parcel: str) -> None:
    """Hand a parcel over to the carrier, in real life by a call over HTTP."""


class Send(Step[str]):
    """Hands over one parcel when the van has come, in ten minutes."""

    def wait_for(self, context: Context, input: str) -> Wait:
        return Wait.until(Timer.by_duration(timedelta(minutes=10)))

    def execute(self, context: Context, input: str) -> StepDecision:
        hand_over(input)
        return graceful_complete(input)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(maximum_attempts=3))


class ParcelFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList.start_step(Send())


class FillLanes(Step[list[str]]):
    """Puts the parcels into the Channel, and opens the lanes."""

    def execute(self, context: Context, input: list[str]) -> StepDecision:
        BatchFlow.parcels.publish(context, *input)
        return go_to_many(*[StepMovement.of(TakeParcel)] * LANES)


class TakeParcel(Step[None]):
    """A lane that is free: takes the next parcel, or ends."""

    def wait_for(self, context: Context, input: None) -> Wait:
        return Wait.until(BatchFlow.parcels.at_most(1))

    def execute(self, context: Context, input: None) -> StepDecision:
        for parcel in BatchFlow.parcels.results(context):
            return go_to(AwaitParcel, parcel)
        return graceful_complete()


class AwaitParcel(Step[str]):
    """A lane with a parcel: sends it, and waits until it is sent or has failed."""

    def wait_for(self, context: Context, input: str) -> Wait:
        return Wait.until(SubFlow.run(parcel_flow, input))

    def execute(self, context: Context, input: str) -> StepDecision:
        sent = SubFlow.get_condition_results(context)
        BatchFlow.outcomes.set(context, input, sent.error_message or "sent")
        return go_to(TakeParcel)


class BatchFlow(Flow[list[str]]):
    parcels = Channel("parcels", str)
    outcomes = AttributeMap("outcomes", str)

    def get_steps(self) -> StepList[list[str]]:
        return StepList.start_step(FillLanes()).other_steps(TakeParcel(), AwaitParcel())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.parcels, self.outcomes)


parcel_flow = register(ParcelFlow())
batch_flow = register(BatchFlow())
