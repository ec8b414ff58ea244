"""Whether locks and loads name what the Flow's persistence schema holds, in the right form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dexflows.attribute import Attribute, AttributeDefinition, AttributeLock, AttributeMap, AttributeMapInstance
from dexflows.channel import ChannelDefinition, ChannelMapInstance, LoadedChannel, load_of
from dexflows.errors import FlowDefinitionError
from dexflows.options import StepOptions
from dexflows.states import StepMethod

__all__ = ["check_channel_scope", "check_scope", "check_step_scope"]


def check_step_scope(
    where: str,
    attributes: Mapping[str, AttributeDefinition],
    channels: Mapping[str, ChannelDefinition],
    options: StepOptions,
) -> None:
    """Check the locks and loads of both handlers of a Step."""
    for method in StepMethod:
        chosen = options.for_method(method)
        check_scope(f"{where}.{method}", attributes, chosen.locks, chosen.load_maps, chosen.load_instances)
        check_channel_scope(f"{where}.{method}", channels, chosen.load_channels)


def check_channel_scope(where: str, channels: Mapping[str, ChannelDefinition], loads: Iterable[LoadedChannel]) -> None:
    """Check what a handler loads of Channels. Raises FlowDefinitionError."""
    for each in loads:
        name, _ = load_of(each)
        definition = each.definition if isinstance(each, ChannelMapInstance) else each
        if channels.get(name) is not definition:
            raise FlowDefinitionError(f"{where} loads {definition!r}, which is not in the persistence schema")


def check_scope(
    where: str,
    attributes: Mapping[str, AttributeDefinition],
    locks: Iterable[AttributeLock],
    load_maps: Iterable[AttributeMap[Any]],
    load_instances: Iterable[AttributeMapInstance],
) -> None:
    """Raise FlowDefinitionError naming `where` and the fault."""
    for lock in locks:
        _check_lock(where, attributes, lock)
    for each in load_maps:
        _check_in_schema(where, attributes, each, "loads")
        if not isinstance(each, AttributeMap):
            raise FlowDefinitionError(f"{where} loads {each!r} as a map, but it is a singleton")
    for one in load_instances:
        if not isinstance(one, AttributeMapInstance):
            raise FlowDefinitionError(f"{where}: {one!r} is no map instance; use map.load(instance)")
        _check_in_schema(where, attributes, one.definition, "loads")
        if not isinstance(one.definition, AttributeMap):
            raise FlowDefinitionError(f"{where} loads an instance of the singleton {one.definition!r}")


def _check_lock(where: str, attributes: Mapping[str, AttributeDefinition], lock: object) -> None:
    if not isinstance(lock, AttributeLock):
        raise FlowDefinitionError(f"{where}: {lock!r} is no lock; use attribute.lock() or map.lock(instance)")
    _check_in_schema(where, attributes, lock.definition, "locks")
    if isinstance(lock.definition, AttributeMap) and lock.instance is None and not lock.whole_map:
        raise FlowDefinitionError(f"{where} locks {lock.definition!r} without an instance")
    if isinstance(lock.definition, Attribute) and (lock.instance is not None or lock.whole_map):
        raise FlowDefinitionError(f"{where} locks the singleton {lock.definition!r} with an instance")


def _check_in_schema(where: str, attributes: Mapping[str, AttributeDefinition], definition: object, verb: str) -> None:
    name = getattr(definition, "name", None)
    if not isinstance(name, str) or attributes.get(name) is not definition:
        raise FlowDefinitionError(f"{where} {verb} {definition!r}, which is not in the persistence schema")
