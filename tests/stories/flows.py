"""The Flow of the stories: its Steps do what an input says, and write down each attempt."""

import itertools
import os
import signal
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from dexflows import (
    Attribute,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    dead_end,
    go_to,
    go_to_many,
    graceful_complete,
    register,
    rpc,
)

LEDGER = """
CREATE TABLE IF NOT EXISTS story_ledger (
    id bigserial, run_id uuid, step text, attempt int, pid int, at timestamptz DEFAULT clock_timestamp(),
    session int DEFAULT pg_backend_pid()
)"""

count = Attribute("count", int)
QUICK = RetryPolicy(initial_interval=0.05, backoff_coefficient=1, maximum_attempts=5)


def write_ledger(context: Context) -> None:
    """Note an attempt, whatever becomes of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO story_ledger (run_id, step, attempt, pid) VALUES (%s, %s, %s, %s)",
            (context.run_id, context.step_execution_id, context.attempt, os.getpid()),
        )


def keep_interpreter_lock(rounds: int) -> None:
    """Loop in C: no other thread runs and no signal is noticed meanwhile."""
    deque(itertools.repeat(None, rounds), maxlen=0)


def add_one(context: Context) -> int:
    """Add 1 to `count`."""
    number = (count.get(context) or 0) + 1
    count.set(context, number)
    return number


@dataclass
class Hold:
    """Wait, up to `seconds`, for a file to appear; on later attempts go straight on."""

    file: str
    seconds: float = 60.0
    every_attempt: bool = False


def _wait_for_file(hold: Hold) -> None:
    until = time.monotonic() + hold.seconds
    while not Path(hold.file).exists() and time.monotonic() < until:
        time.sleep(0.01)


class CountStep(Step[int]):
    """Adds 1, until its input is 0."""

    def execute(self, context: Context, input: int) -> StepDecision:
        write_ledger(context)
        number = add_one(context)
        return go_to(CountStep, input - 1) if input > 1 else graceful_complete(number)


class FlakyStep(Step[int]):
    """Raises in the first `input` attempts."""

    def execute(self, context: Context, input: int) -> StepDecision:
        write_ledger(context)
        if context.attempt <= input:
            raise RuntimeError("not yet")
        return graceful_complete(context.attempt)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=QUICK)


class HoldStep(Step[Hold]):
    """Holds the lock of `count`, waits for a file in the first attempt, then adds 1."""

    def execute(self, context: Context, input: Hold) -> StepDecision:
        write_ledger(context)
        if context.attempt == 1 or input.every_attempt:
            _wait_for_file(input)
        return graceful_complete(add_one(context))

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(count.lock(),), execute_retry=QUICK)


class BusyStep(Step[float]):
    """Keeps the interpreter lock for at least `input` seconds."""

    def execute(self, context: Context, input: float) -> StepDecision:
        write_ledger(context)
        started = time.monotonic()
        keep_interpreter_lock(1_000_000)
        keep_interpreter_lock(int(1_000_000 * input / (time.monotonic() - started)))
        return graceful_complete(context.attempt)


class StuckStep(Step[int]):
    """Keeps the interpreter lock for long in its first attempt, and has a timeout."""

    def execute(self, context: Context, input: int) -> StepDecision:
        write_ledger(context)
        if context.attempt == 1:
            keep_interpreter_lock(10**11)
        return graceful_complete(context.attempt)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_method_timeout=0.5, execute_retry=QUICK)


class SleepyStep(Step[float]):
    """Sleeps past its timeout in its first attempt."""

    def execute(self, context: Context, input: float) -> StepDecision:
        write_ledger(context)
        if context.attempt == 1:
            time.sleep(input)
        return graceful_complete(context.attempt)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_method_timeout=0.3, execute_retry=QUICK)


class BeatStep(Step[int]):
    """Keeps the interpreter lock between `input` heartbeats; with one, for ever after it in its first attempt."""

    def execute(self, context: Context, input: int) -> StepDecision:
        write_ledger(context)
        for beat in range(input):
            until = time.monotonic() + 0.4
            while time.monotonic() < until:
                keep_interpreter_lock(1_000_000)
            context.heartbeat(beat)
        if input == 1 and context.attempt == 1:
            keep_interpreter_lock(10**11)
        return graceful_complete(context.get_last_heartbeat(int))

    def get_step_options(self) -> StepOptions:
        return StepOptions(heartbeat_timeout=1, execute_retry=QUICK)


class DieStep(Step[int]):
    """Kills its own process."""

    def execute(self, context: Context, input: int) -> StepDecision:
        write_ledger(context)
        os.kill(os.getpid(), signal.SIGKILL)
        return dead_end()

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(initial_interval=0.05, backoff_coefficient=1, maximum_attempts=3))


class FanStep(Step[Hold]):
    """Starts a holder of the lock; the RPCs `queue_up` and `go_beside` add to it."""

    def execute(self, context: Context, input: Hold) -> StepDecision:
        return go_to_many(StepMovement.of(HoldStep, input))


@dataclass
class Order:
    """Which Step a story begins with; the input of that Step is one of the others."""

    step: str
    number: float = 0.0
    hold: Hold | None = None


STEPS: dict[str, type[Step]] = {  # type: ignore[type-arg]
    each.__name__: each
    for each in (CountStep, FlakyStep, HoldStep, BusyStep, StuckStep, SleepyStep, BeatStep, DieStep, FanStep)
}
WHOLE_NUMBERS = {CountStep, FlakyStep, StuckStep, BeatStep, DieStep}


class BeginStep(Step[Order]):
    """Goes to the Step that the input names, through the queue."""

    def execute(self, context: Context, input: Order) -> StepDecision:
        step = STEPS[input.step]
        argument = input.hold if input.hold else int(input.number) if step in WHOLE_NUMBERS else input.number
        return go_to(step, argument)


class StoryFlow(Flow[Order]):
    """One Flow for all stories."""

    count = count

    def get_steps(self) -> StepList[Order]:
        return StepList.start_step(BeginStep()).other_steps(*(each() for each in STEPS.values()))

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.count)

    @rpc(name="queue_up")
    def queue_up(self, context: Context, input: list[Hold]) -> RPCResult[None]:
        """Add Steps that need the lock."""
        return RPCResult(None, next_steps=tuple(StepMovement.of(HoldStep, hold) for hold in input))

    @rpc(name="go_beside")
    def go_beside(self, context: Context) -> RPCResult[None]:
        """Add a Step that needs no lock."""
        return RPCResult(None, next_steps=(StepMovement.of(FlakyStep, 0),))

    @rpc(name="bump", lock_attributes=(count.lock(),))
    def bump(self, context: Context) -> RPCResult[int]:
        """Add 1 under the lock."""
        return RPCResult(add_one(context))


story_flow = register(StoryFlow())
