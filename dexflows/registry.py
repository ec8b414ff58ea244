"""The Flows this process knows, checked when they are registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from dexflows.attribute import AttributeDefinition, AttributeLock, AttributeMap, AttributeMapInstance, IndexType
from dexflows.channel import ChannelDefinition, LoadedChannel
from dexflows.codec import Codec
from dexflows.decision import StepRef
from dexflows.errors import FlowDefinitionError, InvalidRequestError, InvalidStepResultError
from dexflows.flow import Flow
from dexflows.options import StepOptions
from dexflows.scope import check_step_scope
from dexflows.step import Step
from dexflows.stream import Stream

__all__ = ["FlowDefinition", "Registry", "RpcDefinition", "StepDefinition", "register", "registry"]

F = TypeVar("F", bound=Flow[Any])


@dataclass(frozen=True, kw_only=True)
class StepDefinition:
    """One Step of a registered Flow."""

    step: Step[Any]
    step_type: str
    input_codec: Codec[Any]
    has_wait_for: bool
    options: StepOptions


@dataclass(frozen=True, kw_only=True)
class RpcDefinition:
    """One RPC of a registered Flow; `function` takes (flow, context[, input]) and `timeout` is in seconds."""

    name: str
    function: Callable[..., Any]
    has_input: bool
    input_codec: Codec[Any] | None
    output_codec: Codec[Any]
    timeout: float
    locks: tuple[AttributeLock, ...]
    load_maps: tuple[AttributeMap[Any], ...]
    load_instances: tuple[AttributeMapInstance, ...]
    load_channels: tuple[LoadedChannel, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowDefinition:
    """A registered Flow with everything that was read from it."""

    flow: Flow[Any]
    flow_type: str
    steps: Mapping[str, StepDefinition]
    start_step: StepDefinition | None
    timeout_step: StepDefinition | None
    """Runs `handle_timeout`, where the Flow overrides it; one of `steps`."""
    rpcs: Mapping[str, RpcDefinition]
    attributes: Mapping[str, AttributeDefinition]
    channels: Mapping[str, ChannelDefinition]
    streams: Mapping[str, Stream[Any]]
    input_codec: Codec[Any]

    @cached_property
    def synced(self) -> frozenset[str]:
        """The names of the Attributes and AttributeMaps that are copied to Attribute Stores."""
        return frozenset(name for name, each in self.attributes.items() if each.sync_to_attribute_store)

    def resolve_step(self, step: StepRef) -> StepDefinition:
        """The Step that a decision names by class or registered instance."""
        found = [each for each in self.steps.values() if each.step is step or type(each.step) is step]
        if len(found) == 1:
            return found[0]
        named = step.__name__ if isinstance(step, type) else repr(step)
        fault = "names several Steps by one class" if found else "is not a Step"
        raise InvalidStepResultError(f"{named} {fault} of Flow {self.flow_type}")

    def recovery_step(self, step: StepDefinition, options: StepOptions) -> StepDefinition | None:
        """The Step that takes over when the `execute` of a Step with these options has failed for good.

        Raises InvalidStepResultError when it is not of this Flow or takes another input.
        """
        named = options.recovery_step
        if named is None:
            return None
        found = self.steps.get(named) if isinstance(named, str) else self.resolve_step(named)
        if found is None:
            raise InvalidStepResultError(f"the recovery Step {named!r} is not a Step of Flow {self.flow_type}")
        if found.input_codec is not step.input_codec:
            given, taken = step.input_codec.type_name, found.input_codec.type_name
            raise InvalidStepResultError(
                f"Step {step.step_type}: its recovery Step {found.step_type} takes {taken}, not {given} as it does"
            )
        return found

    def check_options(self, options: StepOptions) -> None:
        """Refuse a movement's options whose locks or loads are not of this Flow."""
        try:
            check_step_scope("a movement's options", self.attributes, self.channels, options)
        except FlowDefinitionError as error:
            raise InvalidStepResultError(f"Flow {self.flow_type}: {error}") from error


class Registry:
    """Flows by Flow type."""

    def __init__(self) -> None:
        self._by_type: dict[str, FlowDefinition] = {}

    def register(self, flow: F) -> F:
        """Check a Flow and make it known; FlowDefinitionError names the Flow and the fault."""
        from dexflows.registration import define_flow

        definition = define_flow(flow)
        if definition.flow_type in self._by_type:
            raise FlowDefinitionError(f"Flow {definition.flow_type}: this Flow type is registered already")
        self._check_index_keys(definition)
        self._by_type[definition.flow_type] = definition
        return flow

    def get(self, flow_type: str) -> FlowDefinition | None:
        """The Flow of this type, or None."""
        return self._by_type.get(flow_type)

    def definitions(self) -> tuple[FlowDefinition, ...]:
        """All registered Flows."""
        return tuple(self._by_type.values())

    def definition_of(self, flow: Flow[Any] | type[Flow[Any]]) -> FlowDefinition:
        """The definition of a registered Flow instance or class."""
        found = [each for each in self._by_type.values() if each.flow is flow or type(each.flow) is flow]
        if len(found) != 1:
            raise InvalidRequestError(f"{flow!r} is not a registered Flow" if not found else f"{flow!r} is ambiguous")
        return found[0]

    def rpc_of(self, method: Callable[..., Any]) -> tuple[FlowDefinition, RpcDefinition]:
        """The RPC behind a bound method of a registered Flow."""
        definition = self.definition_of(getattr(method, "__self__", None))  # type: ignore[arg-type]
        function = getattr(method, "__func__", None)
        for each in definition.rpcs.values():
            if each.function is function:
                return definition, each
        raise InvalidRequestError(f"{method!r} is not an RPC of Flow {definition.flow_type}")

    def known_steps(self) -> frozenset[tuple[str, str]]:
        """Every (Flow type, Step type) this process can run."""
        return frozenset((each.flow_type, step) for each in self._by_type.values() for step in each.steps)

    def known_index_keys(self) -> Mapping[str, IndexType]:
        """The index keys of all Flows with their types."""
        keys: dict[str, IndexType] = {}
        for definition in self._by_type.values():
            keys.update(index_keys(definition))
        return MappingProxyType(keys)

    @contextmanager
    def isolated(self) -> Iterator[Registry]:
        """Within the block the registry starts empty; what it knew before comes back afterwards. For tests."""
        kept, self._by_type = self._by_type, {}
        try:
            yield self
        finally:
            self._by_type = kept

    def _check_index_keys(self, definition: FlowDefinition) -> None:
        known = self.known_index_keys()
        for key, index_type in index_keys(definition).items():
            if known.get(key, index_type) is not index_type:
                raise FlowDefinitionError(
                    f"Flow {definition.flow_type}: index key {key!r} is {index_type} here and {known[key]} elsewhere"
                )


def index_keys(definition: FlowDefinition) -> dict[str, IndexType]:
    """The index keys of one Flow; a singleton's key defaults to its name."""
    indexed = [each for each in definition.attributes.values() if each.index is not None]
    return {(each.index.key or each.name): each.index.type for each in indexed if each.index is not None}


registry = Registry()
"""The Flows of this process."""


def register(flow: F) -> F:
    """Make a Flow known to this process: `review_flow = register(ReviewFlow())`."""
    return registry.register(flow)
