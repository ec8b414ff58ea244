"""What one handler sees of its run's Attributes, and what it wants to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap, check_instance, physical_name
from dexflows.codec import DEFAULT_MAX_VALUE_BYTES
from dexflows.errors import AttributeMapNotLoadedError, UndeclaredAttributeError

__all__ = ["AttributeBuffer", "AttributeKey", "RawValue"]

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
