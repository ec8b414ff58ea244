"""Registration reads a Flow once and refuses, by name, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dexflows import (
    Attribute,
    AttributeIndex,
    AttributeLock,
    AttributeMap,
    AttributeMapInstance,
    Context,
    Flow,
    FlowDefinitionError,
    IndexType,
    InvalidRequestError,
    InvalidStepResultError,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Wait,
    dead_end,
    register,
    rpc,
)
from dexflows.registry import Registry, registry
from tests.language.flows import Base, Counter, Work, count, notes, strange_map, stranger


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[Registry]:
    with registry.isolated():
        yield registry


def refuse(flow: Any, fault: str) -> None:
    """The Flow is refused with this fault, its name is in the message, and nothing was registered."""
    with pytest.raises(FlowDefinitionError, match=fault) as refused:
        register(flow)
    name = flow.get_flow_type() if isinstance(flow, Flow) else "Flow"
    assert str(name) in str(refused.value)


def test_a_flow_without_steps_is_driven_by_its_rpcs() -> None:
    flow = register(Counter())
    definition = registry.definition_of(flow)
    assert definition.start_step is None
    assert definition.steps == {}
    assert definition.input_codec.type is type(None)
    bump, clear = definition.rpcs["bump"], definition.rpcs["clear"]
    assert registry.rpc_of(flow.add) == (definition, bump)
    assert (bump.has_input, bump.timeout, bump.load_maps) == (True, 5.0, (notes,))
    assert [lock.key for lock in bump.locks] == ["count"]
    assert (clear.has_input, clear.input_codec, clear.output_codec.type, clear.timeout) == (False, None, type(None), 10)


def test_an_instance_of_flow_is_needed() -> None:
    with pytest.raises(FlowDefinitionError, match="instance of Flow"):
        register(Counter)  # type: ignore[type-var]


def test_two_flows_of_one_type_are_refused() -> None:
    register(Counter())
    refuse(Counter(), "registered already")


@pytest.mark.parametrize("name", ["a/b", "a\nb", "x" * 256])
def test_a_bad_flow_type_is_refused(name: str) -> None:
    with pytest.raises(FlowDefinitionError, match="Flow type must be"):
        register(Base(flow_type=name))


def test_two_steps_of_one_type_are_refused() -> None:
    refuse(Base(Work(), Work()), "two Steps have the Step type 'Work'")


def test_two_steps_of_one_class_need_types_of_their_own_and_are_named_by_instance() -> None:
    first, second = Work(step_type="First"), Work(step_type="Second")
    definition = registry.definition_of(register(Base(first, second)))
    assert definition.resolve_step(second).step_type == "Second"
    with pytest.raises(InvalidStepResultError, match="several Steps"):
        definition.resolve_step(Work)
    with pytest.raises(InvalidStepResultError, match="is not a Step"):
        definition.resolve_step(Work())


def test_more_than_one_start_step_is_refused() -> None:
    steps = StepList[Any](start=(Work(step_type="A"), Work(step_type="B")))
    refuse(Base(step_list=steps), "more than one start Step")


def test_what_is_no_step_is_refused() -> None:
    refuse(Base(Work), "no instance of Step")  # type: ignore[arg-type]


def test_what_is_no_step_list_is_refused() -> None:
    refuse(Base(step_list=[]), "must return a StepList")  # type: ignore[arg-type]


class Unannotated(Step[str]):
    def execute(self, context: Context, input) -> StepDecision:  # type: ignore[no-untyped-def]
        return dead_end()


class NoReturn(Step[str]):
    def execute(self, context: Context, input: str):  # type: ignore[no-untyped-def]
        return dead_end()


class WrongReturn(Step[str]):
    def execute(self, context: Context, input: str) -> Wait:  # type: ignore[override]
        return Wait.skip_immediately()


class WrongContext(Step[str]):
    def execute(self, context: str, input: str) -> StepDecision:  # type: ignore[override]
        return dead_end()


class NoInput(Step[None]):
    def execute(self, context: Context) -> StepDecision:  # type: ignore[override]
        return dead_end()


class KeywordOnly(Step[str]):
    def execute(self, context: Context, *, input: str) -> StepDecision:  # type: ignore[override]
        return dead_end()


class Unknown(Step[Any]):
    def execute(self, context: Context, input: Nowhere) -> StepDecision:  # type: ignore[name-defined] # noqa: F821
        return dead_end()


class Unstorable(Step[object]):
    def execute(self, context: Context, input: object) -> StepDecision:
        return dead_end()


class WrongWait(Step[str]):
    def wait_for(self, context: Context, input: str) -> StepDecision:  # type: ignore[override]
        return dead_end()

    def execute(self, context: Context, input: str) -> StepDecision:
        return dead_end()


class Unequal(Step[str]):
    def wait_for(self, context: Context, input: int) -> Wait:  # type: ignore[override]
        return Wait.skip_immediately()

    def execute(self, context: Context, input: str) -> StepDecision:
        return dead_end()


class Misdeclared(Step[int]):
    def execute(self, context: Context, input: str) -> StepDecision:  # type: ignore[override]
        return dead_end()


class BadOptions(Work):
    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_method_timeout=-1)


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (Unannotated, "'input' is missing"),
        (NoReturn, "'return' is missing"),
        (WrongReturn, "annotated to return StepDecision"),
        (WrongContext, "annotated as Context"),
        (NoInput, "must take"),
        (KeywordOnly, "must take"),
        (Unknown, "cannot be read"),
        (Unstorable, "values of type object cannot be stored"),
        (WrongWait, "annotated to return Wait"),
        (Unequal, "different input types"),
        (Misdeclared, "its execute takes str"),
        (BadOptions, "execute_method_timeout"),
    ],
)
def test_a_step_with_wrong_annotations_or_options_is_refused(step: type[Step[Any]], fault: str) -> None:
    refuse(Base(step()), fault)


class AsyncStep(Step[str]):
    async def wait_for(self, context: Context, input: str) -> Wait:
        return Wait.skip_immediately()

    async def execute(self, context: Context, input: str) -> StepDecision:
        return dead_end()


class Sure(Flow[str]):
    def __init__(self, start: Step[Any]) -> None:
        self.start = start

    def get_steps(self) -> StepList[str]:
        return StepList.start_step(self.start).other_steps(Work(step_type="Other"))


class IntStep(Step[int]):
    def execute(self, context: Context, input: int) -> StepDecision:
        return dead_end()


def test_async_handlers_are_as_good_as_others() -> None:
    definition = registry.definition_of(register(Sure(AsyncStep())))
    assert definition.start_step is definition.steps["AsyncStep"]
    assert definition.start_step.has_wait_for
    assert not definition.steps["Other"].has_wait_for
    assert definition.input_codec.type is str


def test_a_start_step_with_another_input_than_the_flow_is_refused() -> None:
    refuse(Sure(IntStep()), "its start Step takes int")


def test_two_definitions_of_one_name_are_refused() -> None:
    refuse(Base(schema=PersistenceSchema.of(count, stranger)), "two persistence definitions are named 'count'")


def test_what_is_no_attribute_is_refused() -> None:
    refuse(Base(schema=PersistenceSchema.of("count")), "no Attribute")  # type: ignore[arg-type]


def test_an_attribute_type_that_cannot_be_stored_is_refused() -> None:
    refuse(Base(schema=PersistenceSchema.of(Attribute("anything", object))), "values of type object")


def test_a_default_of_another_type_is_refused() -> None:
    refuse(Base(schema=PersistenceSchema.of(Attribute("n", int, default="0"))), "expected int")  # type: ignore[arg-type]


def test_an_indexed_map_needs_a_key() -> None:
    indexed = AttributeMap("tags", str, index=AttributeIndex(IndexType.KEYWORD))
    refuse(Base(schema=PersistenceSchema.of(indexed)), "needs an index key")


def test_one_index_key_with_two_types_is_refused_within_a_flow_and_across_flows() -> None:
    number = Attribute("number", int, index=AttributeIndex(IndexType.INT, "slot"))
    word = Attribute("slot", str, index=AttributeIndex(IndexType.KEYWORD))
    refuse(Base(schema=PersistenceSchema.of(number, word)), "index key 'slot'")
    register(Base(schema=PersistenceSchema.of(number), flow_type="Numbers"))
    refuse(Base(schema=PersistenceSchema.of(word), flow_type="Words"), "index key 'slot'")
    assert registry.known_index_keys() == {"slot": IndexType.INT}


@pytest.mark.parametrize(
    ("attribute", "fault"),
    [
        (
            Attribute("s", str, hard_delete_on_null=True, index=AttributeIndex(IndexType.KEYWORD)),
            "cannot have an index",
        ),
        (Attribute("s", str, hard_delete_on_null=True, sync_to_attribute_store=True), "cannot be synced"),
        (Attribute("s", int, hard_delete_on_null=True), "cannot be of type int"),
        (Attribute("s", float, hard_delete_on_null=True), "cannot be of type float"),
        (Attribute("s", bool, hard_delete_on_null=True), "cannot be of type bool"),
        (Attribute("s", str, hard_delete_on_null=True), "not available in this version"),
        (Attribute("s", str, sync_to_attribute_store=True), "not available in this version"),
        (AttributeMap("s", dict[str, str], entries=True), "not available in this version"),
    ],
)
def test_attribute_options_that_do_not_go_together_are_refused(attribute: Any, fault: str) -> None:
    refuse(Base(schema=PersistenceSchema.of(attribute)), fault)


BAD_SCOPES: list[tuple[dict[str, Any], str]] = [
    ({"execute_lock_attributes": (stranger.lock(),)}, "not in the persistence schema"),
    ({"wait_for_lock_attributes": (strange_map.lock("a"),)}, "not in the persistence schema"),
    ({"execute_lock_attributes": (AttributeLock(notes),)}, "without an instance"),
    ({"execute_lock_attributes": (AttributeLock(count, "a"),)}, "with an instance"),
    ({"execute_lock_attributes": (AttributeLock(count, whole_map=True),)}, "with an instance"),
    ({"execute_lock_attributes": (count,)}, "is no lock"),
    ({"execute_load_attribute_maps": (strange_map,)}, "not in the persistence schema"),
    ({"wait_for_load_attribute_maps": (count,)}, "it is a singleton"),
    ({"execute_load_attribute_map_instances": (strange_map.load("a"),)}, "not in the persistence schema"),
    ({"execute_load_attribute_map_instances": (AttributeMapInstance(count, "a"),)}, "singleton"),  # type: ignore[arg-type]
    ({"execute_load_attribute_map_instances": (notes,)}, "no map instance"),
]


@pytest.mark.parametrize(("options", "fault"), BAD_SCOPES)
def test_locks_and_loads_outside_the_schema_are_refused(options: dict[str, Any], fault: str) -> None:
    refuse(Base(Work(StepOptions(**options))), fault)
    definition = registry.definition_of(register(Base(Work())))
    with pytest.raises(InvalidStepResultError, match=fault):
        definition.check_options(StepOptions(**options))


class Number(Step[int]):
    """A Step with another input."""

    def execute(self, context: Context, input: int) -> StepDecision:
        return dead_end()


def test_a_recovery_step_is_one_of_the_flow_and_takes_the_same_input() -> None:
    after, number = Work(step_type="After"), Number()
    register(Base(Work(StepOptions().on_execute_failure_proceed_to(after)), after, flow_type="By instance"))
    register(Base(Work(StepOptions(recovery_step="After")), after, flow_type="By type"))
    refuse(Base(Work(StepOptions().on_execute_failure_proceed_to(after))), "is not a Step of")
    refuse(Base(Work(StepOptions(recovery_step="After"))), "'After' is not a Step of")
    refuse(Base(Work(StepOptions().on_execute_failure_proceed_to(number)), number), "Number takes int, not str")


def test_rpcs_are_checked_like_steps() -> None:
    class Locked(Base):
        @rpc(lock_attributes=(stranger.lock(),))
        def act(self, context: Context) -> None: ...

    class Loaded(Base):
        @rpc(load_attribute_map_instances=(strange_map.load("a"),))
        def act(self, context: Context) -> None: ...

    class Untyped(Base):
        @rpc
        def act(self, context: Context) -> RPCResult:  # type: ignore[type-arg]
            return RPCResult()

    class Text(Base):
        @rpc
        def act(self, context: Context) -> str:
            return ""

    class Twice(Base):
        @rpc
        def act(self, context: Context) -> None: ...

        @rpc(name="act")
        def again(self, context: Context) -> None: ...

    class Slow(Base):
        @rpc(timeout=61)
        def act(self, context: Context) -> None: ...

    class Bare(Base):
        @rpc
        def act(self) -> None: ...

    class Objects(Base):
        @rpc
        def act(self, context: Context) -> RPCResult[object]:
            return RPCResult()

    for flow, fault in (
        (Locked(), "not in the persistence schema"),
        (Loaded(), "not in the persistence schema"),
        (Untyped(), "must return RPCResult"),
        (Text(), "must return RPCResult"),
        (Twice(), "two RPCs are named 'act'"),
        (Slow(), "at most 60 seconds"),
        (Bare(), "must take"),
        (Objects(), "values of type object"),
    ):
        refuse(flow, fault)


def test_an_rpc_may_answer_or_not() -> None:
    class Maybe(Base):
        @rpc
        def act(self, context: Context) -> RPCResult[int] | None:
            return None

    codec = registry.definition_of(register(Maybe())).rpcs["act"].output_codec
    assert codec.decode(codec.encode(None)) is None
    assert codec.decode(codec.encode(5)) == 5


def test_what_is_not_registered_cannot_be_called() -> None:
    flow = Counter()
    for call in (
        lambda: registry.definition_of(flow),
        lambda: registry.rpc_of(flow.add),
        lambda: registry.rpc_of(print),
    ):
        with pytest.raises(InvalidRequestError):
            call()
    register(flow)
    with pytest.raises(InvalidRequestError):
        registry.rpc_of(flow.get_flow_type)
    assert registry.get("Nothing") is None


class WithTimeout(Flow[None]):
    def handle_timeout(self, context: Context) -> StepDecision:
        return dead_end()


def test_an_overridden_handle_timeout_is_one_of_the_steps() -> None:
    with_timeout, without = registry.definition_of(register(WithTimeout())), registry.definition_of(register(Counter()))
    assert with_timeout.timeout_step is with_timeout.steps["handle_timeout"]
    assert with_timeout.start_step is None
    assert without.timeout_step is None
    assert ("WithTimeout", "handle_timeout") in registry.known_steps()


def test_handle_timeout_must_take_a_context_and_return_a_decision() -> None:
    class ReturnsNothing(Flow[None]):
        def handle_timeout(self, context: Context) -> None: ...  # type: ignore[override]

    class TakesInput(Flow[None]):
        def handle_timeout(self, context: Context, input: str) -> StepDecision:  # type: ignore[override]
            return dead_end()

    refuse(ReturnsNothing(), "handle_timeout must be annotated to return StepDecision")
    refuse(TakesInput(), r"handle_timeout must take \(self, context\)")


def test_no_step_may_be_named_as_the_timeouts_handler() -> None:
    class Named(Step[None]):
        def get_step_type(self) -> str:
            return "handle_timeout"

        def execute(self, context: Context, input: None) -> StepDecision:
            return dead_end()

    class Clashing(Flow[None]):
        def get_steps(self) -> StepList[None]:
            return StepList.start_step(Named())

    refuse(Clashing(), "the Step type 'handle_timeout' is reserved")
