"""Encoding what `wait_for` returned for `sql/begin_wait.sql`."""

from typing import Any

from dexflows.channel import ChannelCondition
from dexflows.engine.starting import start_payload
from dexflows.errors import UndeclaredAttributeError
from dexflows.registry import FlowDefinition, registry
from dexflows.sub_flow import SubFlow
from dexflows.wait import Condition, Timer, Wait


def encode_wait(flow: FlowDefinition, wait: Wait) -> dict[str, Any]:
    """The conditions and choices of a wait.

    Raises UndeclaredAttributeError for a Channel of another Flow, InvalidRequestError for a Flow that is not
    registered, ValueMappingError for a SubFlow's input.
    """
    return {"conditions": [_encode(flow, each) for each in wait.conditions], "choices": wait.choices}


def next_timer(wait: Wait) -> float | None:
    """Seconds until the first Timer of a wait fires."""
    return min((each.seconds for each in wait.conditions if isinstance(each, Timer)), default=None)


def _encode(flow: FlowDefinition, condition: Condition) -> dict[str, Any]:
    encoded: dict[str, Any] = {} if condition.condition_id is None else {"id": condition.condition_id}
    match condition:
        case Timer():
            return encoded | {"seconds": condition.seconds}
        case ChannelCondition():
            if flow.channels.get(condition.channel.name) is not condition.channel:
                raise UndeclaredAttributeError(f"{condition.channel!r} is not in the persistence schema of this Flow")
            return {**encoded, **condition.to_json()}
        case SubFlow():
            definition = registry.definition_of(condition.flow)
            started = start_payload(definition, condition.input, condition.options.start)
            return encoded | {"sub_flow": started, "reuse": condition.options.reuse_policy}
