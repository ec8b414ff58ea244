"""Reads a Flow once, checks all of it, and makes its definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap
from dexflows.channel import Channel, ChannelDefinition, ChannelMap
from dexflows.codec import Codec
from dexflows.decision import StepDecision
from dexflows.errors import DexflowsError, FlowDefinitionError
from dexflows.flow import MAX_RPC_TIMEOUT, Flow, RpcOptions, StepList
from dexflows.options import StepOptions
from dexflows.registry import FlowDefinition, RpcDefinition, StepDefinition
from dexflows.schema import PersistenceDefinition, PersistenceSchema
from dexflows.scope import check_channel_scope, check_scope, check_step_scope
from dexflows.signatures import codec_at, generic_argument, read_handler, rpc_output_type
from dexflows.step import Step
from dexflows.timeout_step import TIMEOUT_STEP, AsyncTimeoutStep, TimeoutStep
from dexflows.wait import Wait

__all__ = ["define_flow"]


@dataclass(frozen=True)
class Scope:
    """The definitions that a Flow's Steps and RPCs may name."""

    attributes: Mapping[str, AttributeDefinition]
    channels: Mapping[str, ChannelDefinition]


MAX_NAME_LENGTH = 255
_UNSTORABLE_SECRETS = (int, float, bool)


def define_flow(flow: Flow[Any]) -> FlowDefinition:
    """The checked definition of a Flow; FlowDefinitionError names the Flow and the fault."""
    if not isinstance(flow, Flow):
        raise FlowDefinitionError(f"register takes an instance of Flow, not {flow!r}")
    name = f"Flow {type(flow).__name__}"
    try:
        flow_type = _checked_name(flow.get_flow_type(), "Flow type")
        name = f"Flow {flow_type}"
        return _define(flow, flow_type)
    except (DexflowsError, ValueError, TypeError, AttributeError) as error:
        raise FlowDefinitionError(f"{name}: {error}") from error


def _define(flow: Flow[Any], flow_type: str) -> FlowDefinition:
    definitions = _definitions(flow.get_persistence_schema())
    attributes = {name: each for name, each in definitions.items() if isinstance(each, Attribute | AttributeMap)}
    channels = {name: each for name, each in definitions.items() if isinstance(each, Channel | ChannelMap)}
    scope = Scope(attributes, channels)
    step_list = flow.get_steps()
    if not isinstance(step_list, StepList):
        raise FlowDefinitionError("get_steps must return a StepList")
    if len(step_list.start) > 1:
        raise FlowDefinitionError("more than one start Step")
    steps = _steps((*step_list.start, *step_list.others), scope)
    start = next((each for each in steps.values() if each.step in step_list.start), None)
    timeout = _timeout_step(flow, scope)
    if timeout is not None:
        steps[timeout.step_type] = timeout
    definition = FlowDefinition(
        flow=flow,
        flow_type=flow_type,
        steps=MappingProxyType(steps),
        start_step=start,
        timeout_step=timeout,
        rpcs=MappingProxyType(_rpcs(flow, scope)),
        attributes=MappingProxyType(attributes),
        channels=MappingProxyType(channels),
        input_codec=_input_codec(flow, start),
    )
    for step in steps.values():
        definition.recovery_step(step, step.options)
    return definition


def _checked_name(name: object, what: str) -> str:
    if type(name) is not str or not 1 <= len(name) <= MAX_NAME_LENGTH or "/" in name or not name.isprintable():
        raise FlowDefinitionError(
            f"{what} must be a str of 1 to {MAX_NAME_LENGTH} characters without '/' or control characters, not {name!r}"
        )
    return name


def _input_codec(flow: Flow[Any], start: StepDefinition | None) -> Codec[Any]:
    declared = generic_argument(type(flow), Flow)
    if start is None:
        return codec_at(None if declared is inspect.Parameter.empty else declared, "the input of the Flow")
    if declared is not inspect.Parameter.empty and codec_at(declared, "the input of the Flow") is not start.input_codec:
        raise FlowDefinitionError(f"its input is {declared!r}, but its start Step takes {start.input_codec.type_name}")
    return start.input_codec


def _definitions(schema: object) -> dict[str, PersistenceDefinition]:
    if not isinstance(schema, PersistenceSchema):
        raise FlowDefinitionError("get_persistence_schema must return a PersistenceSchema")
    definitions: dict[str, PersistenceDefinition] = {}
    keys: dict[str, Any] = {}
    for each in schema.definitions:
        if not isinstance(each, Attribute | AttributeMap | Channel | ChannelMap):
            raise FlowDefinitionError(f"the persistence schema holds {each!r}, which is no Attribute or Channel")
        if each.name in definitions:
            raise FlowDefinitionError(f"two persistence definitions are named {each.name!r}")
        if isinstance(each, Attribute | AttributeMap):
            _check_attribute(each)
            _check_index(each, keys)
        else:
            codec_at(each.type, repr(each))
        definitions[each.name] = each
    return definitions


def _check_attribute(each: AttributeDefinition) -> None:
    codec_at(each.type, repr(each))
    each.fresh_default()
    if each.hard_delete_on_null:
        if each.index is not None:
            raise FlowDefinitionError(f"{each!r}: a hard-delete Attribute cannot have an index")
        if each.sync_to_attribute_store:
            raise FlowDefinitionError(f"{each!r}: a hard-delete Attribute cannot be synced to a store")
        if each.type in _UNSTORABLE_SECRETS:
            raise FlowDefinitionError(f"{each!r}: a hard-delete Attribute cannot be of type {each.type.__name__}")
    for option in ("hard_delete_on_null", "sync_to_attribute_store", "entries"):
        if getattr(each, option, False):
            raise FlowDefinitionError(f"{each!r}: {option} is not available in this version")


def _check_index(each: AttributeDefinition, keys: dict[str, Any]) -> None:
    if each.index is None:
        return
    if isinstance(each, AttributeMap) and not each.index.key:
        raise FlowDefinitionError(f"{each!r}: an indexed AttributeMap needs an index key")
    key = each.index.key or each.name
    if keys.setdefault(key, each.index.type) is not each.index.type:
        raise FlowDefinitionError(f"{each!r}: index key {key!r} is both {keys[key]} and {each.index.type}")


def _steps(listed: Iterable[Step[Any]], scope: Scope) -> dict[str, StepDefinition]:
    steps: dict[str, StepDefinition] = {}
    for step in listed:
        if not isinstance(step, Step):
            raise FlowDefinitionError(f"get_steps holds {step!r}, which is no instance of Step")
        definition = _define_step(step, scope)
        if definition.step_type == TIMEOUT_STEP:
            raise FlowDefinitionError(f"the Step type {TIMEOUT_STEP!r} is reserved for the Flow's {TIMEOUT_STEP}")
        if definition.step_type in steps:
            raise FlowDefinitionError(f"two Steps have the Step type {definition.step_type!r}")
        steps[definition.step_type] = definition
    return steps


def _timeout_step(flow: Flow[Any], scope: Scope) -> StepDefinition | None:
    function = type(flow).handle_timeout
    if function is Flow.handle_timeout:
        return None
    signature = read_handler(function, TIMEOUT_STEP)
    if signature.has_input:
        raise FlowDefinitionError(f"{TIMEOUT_STEP} must take (self, context)")
    if signature.returns is not StepDecision:
        raise FlowDefinitionError(f"{TIMEOUT_STEP} must be annotated to return StepDecision")
    kind = AsyncTimeoutStep if inspect.iscoroutinefunction(function) else TimeoutStep
    return _define_step(kind(flow), scope)


def _define_step(step: Step[Any], scope: Scope) -> StepDefinition:
    step_type = _checked_name(step.get_step_type(), f"Step type of {type(step).__name__}")
    where = f"Step {step_type}"
    codec = _step_input(type(step).execute, StepDecision, f"{where}.execute")
    has_wait_for = type(step).wait_for is not Step.wait_for
    if has_wait_for and _step_input(type(step).wait_for, Wait, f"{where}.wait_for") is not codec:
        raise FlowDefinitionError(f"{where}: wait_for and execute take different input types")
    declared = generic_argument(type(step), Step)
    if declared is not inspect.Parameter.empty and codec_at(declared, where) is not codec:
        raise FlowDefinitionError(f"{where}: it is a Step[{declared!r}], but its execute takes {codec.type_name}")
    options = step.get_step_options()
    if not isinstance(options, StepOptions):
        raise FlowDefinitionError(f"{where}: get_step_options must return StepOptions")
    check_step_scope(where, scope.attributes, scope.channels, options)
    return StepDefinition(step=step, step_type=step_type, input_codec=codec, has_wait_for=has_wait_for, options=options)


def _step_input(function: Callable[..., Any], returns: type, where: str) -> Codec[Any]:
    signature = read_handler(function, where)
    if not signature.has_input:
        raise FlowDefinitionError(f"{where} must take (self, context, input)")
    if signature.returns is not returns:
        raise FlowDefinitionError(f"{where} must be annotated to return {returns.__name__}")
    return codec_at(signature.input_type, f"{where}: input")


def _rpcs(flow: Flow[Any], scope: Scope) -> dict[str, RpcDefinition]:
    rpcs: dict[str, RpcDefinition] = {}
    for method_name, function in inspect.getmembers(type(flow), inspect.isfunction):
        options = getattr(function, "__dexflows_rpc__", None)
        if not isinstance(options, RpcOptions):
            continue
        definition = _define_rpc(options.name or method_name, function, options, scope)
        if definition.name in rpcs:
            raise FlowDefinitionError(f"two RPCs are named {definition.name!r}")
        rpcs[definition.name] = definition
    return rpcs


def _define_rpc(name: str, function: Callable[..., Any], options: RpcOptions, scope: Scope) -> RpcDefinition:
    where = f"RPC {_checked_name(name, 'RPC name')}"
    signature = read_handler(function, where)
    if not 0 < options.timeout <= MAX_RPC_TIMEOUT:
        raise FlowDefinitionError(f"{where}: timeout must be over 0 and at most {MAX_RPC_TIMEOUT:g} seconds")
    check_scope(
        where,
        scope.attributes,
        options.lock_attributes,
        options.load_attribute_maps,
        options.load_attribute_map_instances,
    )
    check_channel_scope(where, scope.channels, options.load_channels)
    return RpcDefinition(
        name=name,
        function=function,
        has_input=signature.has_input,
        input_codec=codec_at(signature.input_type, f"{where}: input") if signature.has_input else None,
        output_codec=codec_at(rpc_output_type(signature.returns, where), f"{where}: output"),
        timeout=options.timeout,
        locks=options.lock_attributes,
        load_maps=options.load_attribute_maps,
        load_instances=options.load_attribute_map_instances,
        load_channels=options.load_channels,
    )
