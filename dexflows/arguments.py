"""Checking and reading what callers of the client pass. Whatever is wrong raises InvalidRequestError."""

import re
from typing import Any, TypeVar
from uuid import UUID

from dexflows import selectors
from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap, AttributeMapInstance
from dexflows.buffer import ChannelBuffer
from dexflows.channel import Channel, ChannelDefinition
from dexflows.conf import conf
from dexflows.engine import messages
from dexflows.errors import InvalidRequestError
from dexflows.registry import FlowDefinition, registry

T = TypeVar("T")
MAX_ID_LENGTH = 255
MAX_SUB_FLOW_ID, MAX_SUB_FLOW_BYTES = 1024, 2000
"""Of the Flow ID that a SubFlow has from its parent's; `sql/start_sub_flow.sql` keeps to the same."""
FORBIDDEN_IN_ID = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_id(what: str, value: object) -> None:
    """Refuse what is no Flow ID or request ID."""
    of_sub_flow = what == "Flow ID" and isinstance(value, str) and value.startswith("SubFlow:")
    longest = MAX_SUB_FLOW_ID if of_sub_flow else MAX_ID_LENGTH
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise InvalidRequestError(f"{what} must be a text of 1 to {longest} characters, not {str(value)[:80]!r}")
    if FORBIDDEN_IN_ID.search(value):
        raise InvalidRequestError(f"{what} must not contain '/', control characters or lone surrogates: {value!r}")
    if len(value.encode()) > MAX_SUB_FLOW_BYTES:
        raise InvalidRequestError(f"{what} must take at most {MAX_SUB_FLOW_BYTES} bytes, not {value[:80]!r}")


def options_of(kind: type[T], options: object) -> T:
    """The options of a call, None meaning the default ones."""
    if options is not None and not isinstance(options, kind):
        raise InvalidRequestError(f"options must be {kind.__name__}, not {options!r}")
    return kind() if options is None else options


def run_id_of(value: str | None) -> UUID | None:
    """A run ID that a caller may have given."""
    try:
        return None if value is None else UUID(str(value))
    except ValueError:
        raise InvalidRequestError(f"run ID must be a UUID, not {str(value)[:80]!r}") from None


def selector_of(attribute: AttributeDefinition, instance: str | None) -> selectors.Selector:
    """What to read: a singleton, or one instance of a map."""
    if isinstance(attribute, AttributeMap):
        if instance is None:
            raise InvalidRequestError(f"{attribute!r} needs an instance")
        return attribute.load(instance)
    if not isinstance(attribute, Attribute):
        raise InvalidRequestError(f"{attribute!r} is no Attribute or AttributeMap")
    if instance is not None:
        raise InvalidRequestError(f"{attribute!r} has no instances")
    return attribute


def check_declared(definition: FlowDefinition | None, selected: tuple[selectors.Selector, ...]) -> None:
    """Refuse what is no Attribute or map instance, and Attributes of another Flow."""
    for each in selected:
        if not isinstance(each, Attribute | AttributeMapInstance):
            raise InvalidRequestError(f"to read are attribute or attribute_map.load(instance), not {each!r}")
        named = each.definition if isinstance(each, AttributeMapInstance) else each
        if definition is not None and definition.attributes.get(named.name) is not named:
            raise InvalidRequestError(f"{named!r} is not in the schema of Flow {definition.flow_type}")


def write_of(write: tuple[Any, ...]) -> tuple[AttributeDefinition, str, object]:
    """What to write, from `(attribute, value)` or `(attribute_map, instance, value)`."""
    attribute = write[0] if write else None
    if isinstance(attribute, Attribute) and len(write) == 2:
        return attribute, "", write[1]
    if isinstance(attribute, AttributeMap) and len(write) == 3:
        return attribute, attribute.load(write[1]).instance, write[2]
    raise InvalidRequestError("a write is (attribute, value) or (attribute_map, instance, value)")


def batch_of(channel: ChannelDefinition, values: tuple[Any, ...]) -> messages.Batch:
    """Encode messages through a Channel's own buffer, as a handler of a Flow that has it would."""
    flows = [each for each in registry.definitions() if each.channels.get(getattr(channel, "name", "")) is channel]
    if not flows:
        raise InvalidRequestError(f"{channel!r} is no Channel of a registered Flow")
    instance, published = ("", values) if isinstance(channel, Channel) else (values[0] if values else "", values[1:])
    buffer = ChannelBuffer(schema=flows[0].channels, max_value_bytes=conf().max_value_bytes)
    buffer.publish(channel, published, instance)
    return messages.Batch(flow_types=tuple(each.flow_type for each in flows), messages=tuple(buffer.published))
