"""What the database stores of a handler's Attribute writes: the values, and what follows from them."""

from collections.abc import Mapping
from typing import Any

from dexflows.buffer import AttributeKey
from dexflows.engine.outcomes import raw
from dexflows.registry import FlowDefinition


def attribute_effects(flow: FlowDefinition, writes: Mapping[AttributeKey, str | None]) -> dict[str, Any]:
    """The parts of `sql/apply_effects.sql` for writes as JSON text by name and instance; None deletes."""
    if not writes:
        return {}
    effects: dict[str, Any] = {"writes": [(*key, raw(value)) for key, value in writes.items()]}
    if flow.synced and (synced := [key for key in writes if key[0] in flow.synced]):
        effects["synced"] = synced
    return effects
