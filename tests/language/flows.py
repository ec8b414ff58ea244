"""Small Flows from which the registration tests make faulty ones."""

from __future__ import annotations

from typing import Any

from dexflows import (
    Attribute,
    AttributeMap,
    Context,
    Flow,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    dead_end,
    rpc,
)

count = Attribute("count", int, default=0)
notes = AttributeMap("notes", str)
stranger = Attribute("count", int)
strange_map = AttributeMap("others", str)


class Work(Step[str]):
    """A Step with the options and Step type it is made with."""

    def __init__(self, options: StepOptions | None = None, step_type: str = "Work") -> None:
        self.options = options or StepOptions()
        self.step_type = step_type

    def execute(self, context: Context, input: str) -> StepDecision:
        return dead_end()

    def get_step_type(self) -> str:
        return self.step_type

    def get_step_options(self) -> StepOptions:
        return self.options


class Base(Flow[Any]):
    """A Flow of what it is made with."""

    def __init__(
        self,
        *steps: Step[Any],
        schema: PersistenceSchema | None = None,
        flow_type: str | None = None,
        step_list: StepList[Any] | None = None,
    ) -> None:
        self.step_list = step_list if step_list is not None else StepList.without_start_step(*steps)
        self.schema = schema if schema is not None else PersistenceSchema.of(count, notes)
        self.flow_type = flow_type

    def get_flow_type(self) -> str:
        return self.flow_type or super().get_flow_type()

    def get_steps(self) -> StepList[Any]:
        return self.step_list

    def get_persistence_schema(self) -> PersistenceSchema:
        return self.schema


class Counter(Base):
    """A Flow driven by RPCs alone."""

    @rpc(name="bump", timeout=5, lock_attributes=(count.lock(),), load_attribute_maps=(notes,))
    def add(self, context: Context, input: int) -> RPCResult[int]:
        total = (count.get(context) or 0) + input
        count.set(context, total)
        return RPCResult(total)

    @rpc
    async def clear(self, context: Context) -> None:
        count.delete(context)
