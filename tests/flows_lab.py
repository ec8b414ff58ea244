"""A Flow whose handlers are given by the test: Steps made of functions, RPCs that call whatever the test puts in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dexflows import (
    Attribute,
    AttributeMap,
    Channel,
    ChannelMap,
    Context,
    Flow,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Wait,
    dead_end,
    rpc,
)

Handler = Callable[[Context, str], Any]


class LabStep(Step[str]):
    """A Step named and driven by the test."""

    def __init__(self, name: str, handler: Handler | None = None, **options: Any) -> None:
        self.name = name
        self.handler = handler
        self.options = StepOptions(**options)

    def get_step_type(self) -> str:
        return self.name

    def get_step_options(self) -> StepOptions:
        return self.options

    def execute(self, context: Context, input: str) -> StepDecision:
        if self.handler is None:
            return dead_end()
        result: StepDecision = self.handler(context, input)
        return result


class WaitingLabStep(LabStep):
    """The same with a `wait_for`."""

    def __init__(self, name: str, handler: Handler | None = None, wait: Handler | None = None, **options: Any) -> None:
        super().__init__(name, handler, **options)
        self.wait = wait

    def wait_for(self, context: Context, input: str) -> Wait:
        result = self.wait(context, input) if self.wait is not None else None
        return result if isinstance(result, Wait) else Wait.skip_immediately()


class AsyncLabStep(LabStep):
    """The same with an `async def` handler."""

    async def execute(self, context: Context, input: str) -> StepDecision:  # type: ignore[override]
        assert self.handler is not None
        result: StepDecision = await self.handler(context, input)
        return result


class LabFlow(Flow[str]):
    """Attributes `c`, `a`, `b`, `note`, an AttributeMap, two Channels, a ChannelMap, and RPCs over them."""

    c = Attribute("c", int, default=0)
    a = Attribute("a", str)
    b = Attribute("b", str)
    note = Attribute("note", str)
    m = AttributeMap("m", int)
    ch = Channel("ch", int)
    anything = Channel("anything", str | int | bool | list[int] | None)  # type: ignore[arg-type]
    cm = ChannelMap("cm", str)

    def __init__(self, *steps: Step[Any], start: bool = True) -> None:
        self.steps = steps
        self.start = start and bool(steps)
        self.on_call: Callable[[Context], Any] = lambda context: None

    def get_steps(self) -> StepList[str]:
        if self.start:
            return StepList.start_step(self.steps[0]).other_steps(*self.steps[1:])
        return StepList.without_start_step(*self.steps)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.c, self.a, self.b, self.note, self.m, self.ch, self.anything, self.cm)

    def _call(self, context: Context) -> RPCResult[str]:
        result = self.on_call(context)
        return result if isinstance(result, RPCResult) else RPCResult("done" if result is None else result)

    @rpc(lock_attributes=(c.lock(),))
    def bump(self, context: Context) -> RPCResult[int]:
        value = (self.c.get(context) or 0) + 1
        self.c.set(context, value)
        return RPCResult(value)

    @rpc
    def read(self, context: Context) -> RPCResult[int]:
        return RPCResult(self.c.get(context) or 0)

    @rpc
    def put(self, context: Context, input: str) -> RPCResult[None]:
        self.note.set(context, input)
        return RPCResult(None)

    @rpc
    def call(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(load_channels=(ch, cm))
    def call_on_channels(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(timeout=0.3)
    def call_briefly(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(c.lock(),), timeout=0.3)
    def call_briefly_on_c(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(c.lock(),))
    def call_on_c(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(a.lock(),))
    def call_on_a(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(b.lock(),))
    def call_on_b(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(a.lock(), b.lock()))
    def call_on_a_and_b(self, context: Context) -> RPCResult[str]:
        return self._call(context)

    @rpc(lock_attributes=(m.lock_all(),), load_attribute_maps=(m,))
    def call_on_all_of_m(self, context: Context) -> RPCResult[str]:
        return self._call(context)
