"""What one handler sees of its run's Attributes, and what it wants to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap, check_instance, physical_name
from dexflows.channel import Channel, ChannelDefinition, ChannelLoad, ChannelMap, ChannelMessage
from dexflows.codec import DEFAULT_MAX_VALUE_BYTES
from dexflows.errors import (
    AttributeMapNotLoadedError,
    ChannelMessageNotFoundError,
    ChannelNotLoadedError,
    UndeclaredAttributeError,
)

__all__ = ["AttributeBuffer", "AttributeKey", "ChannelBuffer", "QueuedMessage", "RawValue"]

AttributeKey = tuple[str, str]
"""Attribute name and instance; the instance of a singleton is ''."""
RawValue = str | bytes | msgspec.Raw


class AttributeBuffer:
    """The loaded values of one handler, overlaid by its own writes; commits nothing by itself.

    `schema` maps the names of the Flow's definitions, `loaded` holds raw JSON by name and instance. `writes` is
    the result: JSON text, or None to delete, in the order of the first write to each key.
    """

    def __init__(
        self,
        *,
        schema: Mapping[str, AttributeDefinition],
        loaded: Mapping[AttributeKey, RawValue] | None = None,
        loaded_maps: frozenset[str] = frozenset(),
        loaded_instances: frozenset[AttributeKey] = frozenset(),
        max_value_bytes: int = DEFAULT_MAX_VALUE_BYTES,
    ) -> None:
        self._schema = schema
        self._loaded = loaded if loaded is not None else {}
        self._loaded_maps = loaded_maps
        self._loaded_instances = loaded_instances
        self._max_value_bytes = max_value_bytes
        self.writes: dict[AttributeKey, str | None] = {}

    def get(self, definition: AttributeDefinition, instance: str = "") -> Any:
        """A fresh copy of the value, or of the default when it is absent."""
        key = self._key(definition, instance)
        if key in self.writes:
            raw: RawValue | None = self.writes[key]
        else:
            self._check_loaded(definition, key)
            raw = self._loaded.get(key)
        if raw is None:
            return definition.fresh_default()
        return definition.codec.decode(bytes(raw) if isinstance(raw, msgspec.Raw) else raw)

    def set(self, definition: AttributeDefinition, value: object, instance: str = "") -> None:
        """Buffer a write; None deletes."""
        key = self._key(definition, instance)
        if value is None:
            self.writes[key] = None
            return
        name = physical_name(*key)
        self.writes[key] = definition.codec.encode(value, key=name, limit=self._max_value_bytes)

    def delete(self, definition: AttributeDefinition, instance: str = "") -> None:
        """Buffer a deletion."""
        self.writes[self._key(definition, instance)] = None

    def instances(self, definition: AttributeMap[Any]) -> list[str]:
        """The sorted instance keys of a map that is loaded as a whole."""
        self._check_declared(definition)
        name = definition.name
        if name not in self._loaded_maps:
            raise AttributeMapNotLoadedError(f"AttributeMap {name!r} is not loaded as a whole: name it in load options")
        present = {instance for loaded, instance in self._loaded if loaded == name}
        for (written, instance), raw in self.writes.items():
            if written == name:
                present.discard(instance) if raw is None else present.add(instance)
        return sorted(present)

    def size(self, definition: AttributeMap[Any]) -> int:
        """The number of instances of a map that is loaded as a whole."""
        return len(self.instances(definition))

    def _key(self, definition: AttributeDefinition, instance: str) -> AttributeKey:
        self._check_declared(definition)
        if isinstance(definition, Attribute):
            return definition.name, ""
        return definition.name, check_instance(definition.name, instance)

    def _check_declared(self, definition: AttributeDefinition) -> None:
        if self._schema.get(definition.name) is not definition:
            raise UndeclaredAttributeError(f"{definition!r} is not in the persistence schema of this Flow")

    def _check_loaded(self, definition: AttributeDefinition, key: AttributeKey) -> None:
        if isinstance(definition, Attribute) or key[0] in self._loaded_maps or key in self._loaded_instances:
            return
        raise AttributeMapNotLoadedError(f"{physical_name(*key)!r} is not loaded: name it in load options")


QueuedMessage = tuple[int, RawValue]
"""The sequence number and raw JSON of a message."""


class ChannelBuffer:
    """The Channels of one handler: what it loaded, what its Step's wait took, and what it publishes and deletes.

    `loads` names what was loaded: Channel name, and instance ('' for a Channel, None for a whole map). `published` and
    `deleted` are the result, in the order of the calls.
    """

    def __init__(
        self,
        *,
        schema: Mapping[str, ChannelDefinition],
        loaded: Mapping[AttributeKey, list[QueuedMessage]] | None = None,
        loads: frozenset[ChannelLoad] = frozenset(),
        taken: Mapping[AttributeKey, list[msgspec.Raw]] | None = None,
        max_value_bytes: int = DEFAULT_MAX_VALUE_BYTES,
    ) -> None:
        self._schema = schema
        self._loaded = loaded if loaded is not None else {}
        self._loads = loads
        self._taken = taken if taken is not None else {}
        self._max_value_bytes = max_value_bytes
        self.published: list[tuple[AttributeKey, str]] = []
        self.deleted: list[tuple[AttributeKey, int]] = []

    def publish(self, channel: ChannelDefinition, values: Iterable[object], instance: str = "") -> None:
        """Buffer messages."""
        key = self._key(channel, instance)
        name = f"message of {physical_name(*key)}"
        for value in values:
            self.published.append((key, channel.codec.encode(value, key=name, limit=self._max_value_bytes)))

    def taken(self, channel: ChannelDefinition, instance: str = "") -> list[Any]:
        """What the wait of this Step took."""
        return [_decoded(channel, raw) for raw in self._taken.get(self._key(channel, instance), ())]

    def pending(self, channel: ChannelDefinition, instance: str = "") -> list[ChannelMessage[Any]]:
        """What was queued when the state was read, without what this handler deletes."""
        key = self._key(channel, instance)
        if key not in self._loads and (key[0], None) not in self._loads:
            raise ChannelNotLoadedError(f"{physical_name(*key)!r} is not loaded: name it in load_channels")
        deleted = {seq for where, seq in self.deleted if where == key}
        queued = ((seq, raw) for seq, raw in self._loaded.get(key, ()) if seq not in deleted)
        return [ChannelMessage(id=str(seq), value=_decoded(channel, raw)) for seq, raw in queued]

    def size(self, channel: ChannelDefinition, instance: str = "") -> int:
        """How many messages `pending` gives."""
        return len(self.pending(channel, instance))

    def instances(self, channel: ChannelMap[Any]) -> list[str]:
        """The sorted instance keys, of a map that is loaded as a whole, that have messages."""
        self._check_declared(channel)
        if (channel.name, None) not in self._loads:
            raise ChannelNotLoadedError(
                f"ChannelMap {channel.name!r} is not loaded as a whole: name it in load_channels"
            )
        found = (instance for name, instance in self._loaded if name == channel.name)
        return sorted(instance for instance in found if self.pending(channel, instance))

    def delete(self, channel: ChannelDefinition, message_id: str, instance: str = "") -> None:
        """Buffer the deletion of a message."""
        key = self._key(channel, instance)
        if not (isinstance(message_id, str) and message_id.isascii() and message_id.isdigit() and len(message_id) < 19):
            raise ChannelMessageNotFoundError(f"{str(message_id)[:80]!r} is no message ID")
        self.deleted.append((key, int(message_id)))

    def _key(self, channel: ChannelDefinition, instance: str) -> AttributeKey:
        self._check_declared(channel)
        if isinstance(channel, Channel):
            return channel.name, ""
        return channel.name, check_instance(channel.name, instance)

    def _check_declared(self, channel: ChannelDefinition) -> None:
        if self._schema.get(channel.name) is not channel:
            raise UndeclaredAttributeError(f"{channel!r} is not in the persistence schema of this Flow")


def _decoded(channel: ChannelDefinition, raw: RawValue) -> Any:
    return channel.codec.decode(bytes(raw) if isinstance(raw, msgspec.Raw) else raw)
