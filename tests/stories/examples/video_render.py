"""A film is rendered for hours, frame by frame, until it is ready or somebody has seen enough.

The handler that renders says with each frame that it is alive and how far it is: a worker that falls silent is given up
after a minute, and the next attempt goes on with the next frame. Beside it another Step waits for the word to stop.
Whichever of the two ends first cancels the other.
"""

from dataclasses import dataclass

from dexflows import (
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    Wait,
    dead_end,
    go_to_many,
    graceful_complete,
    register,
)


def render(film: str, frame: int) -> None:
    """Render one frame into a file of its own; in real life this takes a while."""


@dataclass
class Film:
    name: str
    frames: int


class Begin(Step[Film]):
    def execute(self, context: Context, input: Film) -> StepDecision:
        return go_to_many(StepMovement.of(RenderFrames, input), StepMovement.of(AwaitStop))


class RenderFrames(Step[Film]):
    """Renders from where the last attempt got to."""

    def execute(self, context: Context, input: Film) -> StepDecision:
        for frame in range(context.get_last_heartbeat(int) or 0, input.frames):
            render(input.name, frame)
            context.heartbeat(frame + 1)
            if context.is_cancellation_requested():
                return dead_end()
        return graceful_complete("rendered").with_canceling_sibling_steps(AwaitStop)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_method_timeout=24 * 3600, heartbeat_timeout=60)


class AwaitStop(Step[None]):
    """Waits for the word to stop, and stops its sibling."""

    def wait_for(self, context: Context, input: None) -> Wait:
        return Wait.until(RenderFlow.stop.for_one())

    def execute(self, context: Context, input: None) -> StepDecision:
        (reason,) = RenderFlow.stop.results(context)
        return graceful_complete(f"stopped: {reason}").with_canceling_sibling_steps(RenderFrames)


class RenderFlow(Flow[Film]):
    stop = Channel("stop", str)

    def get_steps(self) -> StepList[Film]:
        return StepList.start_step(Begin()).other_steps(RenderFrames(), AwaitStop())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.stop)


render_flow = register(RenderFlow())
