"""The Flows of the long runs."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta

from dexflows import (
    Attribute,
    Channel,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Timer,
    Wait,
    go_to,
    graceful_complete,
    register,
    rpc,
)

wake = Channel("wake", int)
numbers = Channel("numbers", int)
count = Attribute("count", int, default=0)
RETRY_INTERVAL = 20.0
last_of_sender = Attribute("last-of-sender", dict[str, int], default={})


class WaitStep(Step[float]):
    """Waits for a message, or for so many seconds where the input is above 0."""

    def wait_for(self, context: Context, input: float) -> Wait:
        if input <= 0:
            return Wait.until(wake.for_one())
        return Wait.any_of(wake.for_one(), Timer.by_duration(input))

    def execute(self, context: Context, input: float) -> StepDecision:
        return graceful_complete("timer" if context.has_timer_fired() else "message")


class SleepFlow(Flow[float]):
    """Waits once."""

    def get_steps(self) -> StepList[float]:
        return StepList.start_step(WaitStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(wake)


@dataclass
class Race:
    """A deadline in seconds, and whether the process dies in the first attempt after it."""

    deadline: float
    dies: bool


class RaceStep(Step[Race]):
    """Waits for a message until a deadline, and tells in each attempt what it saw."""

    def wait_for(self, context: Context, input: Race) -> Wait:
        return Wait.any_of(Timer.by_duration(timedelta(seconds=input.deadline)), wake.for_one())

    def execute(self, context: Context, input: Race) -> StepDecision:
        saw = "timer" if context.has_timer_fired() else f"message {wake.results(context)[0]}"
        context.heartbeat([*(context.get_last_heartbeat(list[str]) or []), saw])
        if input.dies and context.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return graceful_complete(context.get_last_heartbeat(list[str]))


class RaceFlow(Flow[Race]):
    """One race."""

    def get_steps(self) -> StepList[Race]:
        return StepList.start_step(RaceStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(wake)


class TakeStep(Step[int]):
    """Takes one number after the other, and checks that each sender's come in order; ends after `input` of them."""

    def wait_for(self, context: Context, input: int) -> Wait:
        return Wait.until(numbers.for_one())

    def execute(self, context: Context, input: int) -> StepDecision:
        (number,) = numbers.results(context)
        sender, place = divmod(number, 1_000_000)
        last = last_of_sender.get(context) or {}
        if last.get(str(sender), -1) != place - 1:
            raise RuntimeError(f"{place} of sender {sender} came after {last}")
        last_of_sender.set(context, {**last, str(sender): place})
        return go_to(TakeStep, input - 1) if input > 1 else graceful_complete(last | {str(sender): place})

    def get_step_options(self) -> StepOptions:
        return StepOptions()


class TakeFlow(Flow[int]):
    """Takes numbers."""

    def get_steps(self) -> StepList[int]:
        return StepList.start_step(TakeStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(numbers, last_of_sender)


class NextStep(Step[int]):
    """Goes on and on."""

    def execute(self, context: Context, input: int) -> StepDecision:
        return go_to(NextStep, input - 1) if input else graceful_complete("done")


class ChainFlow(Flow[int]):
    """A chain of so many Steps, with an RPC that counts."""

    def get_steps(self) -> StepList[int]:
        return StepList.start_step(NextStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(count)

    @rpc(lock_attributes=(count.lock(),))
    def bump(self, context: Context) -> RPCResult[int]:
        """Add 1."""
        number = (count.get(context) or 0) + 1
        count.set(context, number)
        return RPCResult(number)


class SlowStep(Step[int]):
    """Adds 1 after a moment, so many times."""

    def execute(self, context: Context, input: int) -> StepDecision:
        number = (count.get(context) or 0) + 1
        time.sleep(0.1)
        count.set(context, number)
        return go_to(SlowStep, input - 1) if input > 1 else graceful_complete(number)


class SlowFlow(Flow[int]):
    """Counts slowly."""

    def get_steps(self) -> StepList[int]:
        return StepList.start_step(SlowStep())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(count)


class FailOnceStep(Step[None]):
    """Fails once."""

    def execute(self, context: Context, input: None) -> StepDecision:
        if context.attempt == 1:
            raise RuntimeError("a service is away")
        return graceful_complete("done")

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_retry=RetryPolicy(initial_interval=RETRY_INTERVAL))


class FailOnceFlow(Flow[None]):
    """Fails once."""

    def get_steps(self) -> StepList[None]:
        return StepList.start_step(FailOnceStep())


sleep_flow = register(SleepFlow())
race_flow = register(RaceFlow())
take_flow = register(TakeFlow())
chain_flow = register(ChainFlow())
slow_flow = register(SlowFlow())
fail_once_flow = register(FailOnceFlow())
