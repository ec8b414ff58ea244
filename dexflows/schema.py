"""What a Flow owns: the definitions of its persistence schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from dexflows.attribute import AttributeDefinition
from dexflows.channel import ChannelDefinition
from dexflows.stream import Stream

__all__ = ["PersistenceDefinition", "PersistenceSchema"]

PersistenceDefinition: TypeAlias = AttributeDefinition | ChannelDefinition | Stream[Any]


@dataclass(frozen=True)
class PersistenceSchema:
    """The Attributes, AttributeMaps, Channels, ChannelMaps and Streams a Flow owns."""

    definitions: tuple[PersistenceDefinition, ...] = ()

    @classmethod
    def of(cls, *definitions: PersistenceDefinition) -> PersistenceSchema:
        """The schema of these definitions."""
        return cls(definitions)
