"""Starting a run: run, initial Attributes and start Step in one statement, or the existing run's name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from dexflows import sql
from dexflows.attribute import AttributeDefinition
from dexflows.buffer import AttributeBuffer
from dexflows.conf import conf
from dexflows.decision import StepMovement
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.effects import attribute_effects
from dexflows.engine.keys import step_keys
from dexflows.engine.movements import movement_of
from dexflows.engine.outcomes import Effects, raw
from dexflows.errors import InvalidRequestError, InvalidStepResultError
from dexflows.options import FlowConfig, StartFlowOptions
from dexflows.registry import FlowDefinition, StepDefinition
from dexflows.states import FlowTimeoutPolicy

START = "SELECT * FROM dexflows_start(%s::jsonb)"


@dataclass(frozen=True, slots=True)
class Started:
    """The run that a start made, or (`started` False) the one that is in its way."""

    started: bool
    run_id: UUID
    request_id: str | None


def start(flow_id: str, payload: dict[str, Any], options: StartFlowOptions) -> Started:
    """Start a run inside the caller's transaction, or in one of its own. One round trip."""
    asked = {"flow_id": flow_id, "policy": options.id_reuse_policy, "request_id": options.request_id}
    text = msgspec.json.encode(payload | asked).decode()
    started, run_id, known_request, rings = sql.call(conf().database, START, (text,))[0]
    ring_after_commit(step_keys(run_id, rings))
    return Started(started, run_id, known_request)


def start_payload(flow: FlowDefinition, input: object, options: StartFlowOptions) -> dict[str, Any]:
    """What `sql/begin_run.sql` makes a run of, all of it encoded and checked.

    Raises InvalidRequestError for an option that cannot be, ValueMappingError for an input or initial Attribute of
    the wrong type.
    """
    check_config(options.config_override)
    config = options.config_override.to_json()
    queue = options.config_override.worker_target or conf().default_queue
    parts = [(each.definition, each.instance, each.value) for each in options.initial_attributes]
    payload: dict[str, Any] = {
        "flow_type": flow.flow_type,
        "queue": queue,
        "input": raw(flow.input_codec.encode(input, key="input", limit=conf().max_value_bytes)),
        "config": config or None,
        **Effects(attributes=encoded_writes(flow, parts)).to_payload(),
    }
    if flow.start_step is not None:
        movement = movement_of(flow, StepMovement.of(flow.start_step.step, input), queue)
        payload["movements"] = [movement.to_payload()]
    policy = _timeout_policy(flow, options)
    if options.timeout is not None:
        payload["timeout"] = {"seconds": options.timeout, "policy": policy}
        if policy is FlowTimeoutPolicy.HANDLER and flow.timeout_step is not None:
            payload["timeout"]["movement"] = _handling(flow, flow.timeout_step, options, queue)
    if options.start_delay:
        payload["delay"] = options.start_delay
    if options.retry_policy is not None:
        payload["retry"] = options.retry_policy.to_json()
    if options.start_delay or options.retry_policy is not None:
        payload["ring_within"] = conf().sweep_seconds
    return payload


def _timeout_policy(flow: FlowDefinition, options: StartFlowOptions) -> FlowTimeoutPolicy:
    if options.timeout_policy is FlowTimeoutPolicy.HANDLER and flow.timeout_step is None:
        raise InvalidRequestError(
            f"timeout_policy is HANDLER, but Flow {flow.flow_type} has no handle_timeout: override it, or take another"
        )
    default = FlowTimeoutPolicy.FAIL if flow.timeout_step is None else FlowTimeoutPolicy.HANDLER
    return options.timeout_policy or default


def _handling(flow: FlowDefinition, step: StepDefinition, options: StartFlowOptions, queue: str) -> dict[str, Any]:
    """The Step execution to be created when the timeout comes."""
    try:
        movement = movement_of(flow, StepMovement.of(step.step, options=options.timeout_handler_options), queue)
    except InvalidStepResultError as error:
        raise InvalidRequestError(f"timeout_handler_options: {error}") from error
    return movement.to_payload()


def check_config(config: FlowConfig) -> None:
    """Refuse what this version would take without doing it."""
    names = ("retention", "history_limit", "attribute_store_names")
    if ineffective := [name for name in names if getattr(config, name) is not None]:
        raise InvalidRequestError(f"not available in this version: {', '.join(ineffective)}")


def encoded_writes(flow: FlowDefinition, parts: Iterable[tuple[AttributeDefinition, str, object]]) -> dict[str, Any]:
    """What the database stores of Attribute writes (definition, instance or '', value); None deletes."""
    buffer = AttributeBuffer(schema=flow.attributes, max_value_bytes=conf().max_value_bytes)
    for attribute, instance, value in parts:
        if flow.attributes.get(attribute.name) is not attribute:
            raise InvalidRequestError(f"{attribute!r} is not in the schema of Flow {flow.flow_type}")
        buffer.set(attribute, value, instance)
    return attribute_effects(flow, buffer.writes)
