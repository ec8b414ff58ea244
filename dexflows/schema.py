"""What a Flow owns: the definitions of its persistence schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dexflows.attribute import AttributeDefinition
from dexflows.channel import ChannelDefinition

__all__ = ["PersistenceDefinition", "PersistenceSchema"]

PersistenceDefinition: TypeAlias = AttributeDefinition | ChannelDefinition


@dataclass(frozen=True)
class PersistenceSchema:
    """The Attributes, AttributeMaps, Channels and ChannelMaps a Flow owns."""

    definitions: tuple[PersistenceDefinition, ...] = ()

    @classmethod
    def of(cls, *definitions: PersistenceDefinition) -> PersistenceSchema:
        """The schema of these definitions."""
        return cls(definitions)
