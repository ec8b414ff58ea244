"""Options of Steps, starts, stops and RPC calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from dexflows.attribute import (
    MAX_NAME_LENGTH,
    Attribute,
    AttributeDefinition,
    AttributeLock,
    AttributeMap,
    AttributeMapInstance,
    check_instance,
)
from dexflows.channel import Channel, ChannelDefinition, ChannelMap, ChannelMapInstance, LoadedChannel, load_of
from dexflows.retry import RetryPolicy, seconds
from dexflows.states import (
    FlowTimeoutPolicy,
    IdReusePolicy,
    StepDurability,
    StepMethod,
    StopType,
    WaitForFailure,
)

if TYPE_CHECKING:
    from dexflows.decision import StepRef

__all__ = [
    "FlowConfig",
    "InitialAttribute",
    "MethodOptions",
    "RPCInvokeOptions",
    "StartFlowOptions",
    "StepOptions",
    "StopFlowOptions",
]

T = TypeVar("T")
DEFAULT_METHOD_TIMEOUT = 2 * 3600.0


def _check_queue(name: object) -> None:
    if name is not None and not (type(name) is str and 1 <= len(name) <= MAX_NAME_LENGTH and name.isprintable()):
        raise ValueError(f"worker_target must be a str of 1 to {MAX_NAME_LENGTH} printable characters, not {name!r}")


def _check_kinds(options: object, kinds: Mapping[str, type | UnionType]) -> None:
    """Refuse values that are nothing of what these fields hold."""
    for name, kind in kinds.items():
        if not isinstance(value := getattr(options, name), kind):
            called = kind.__name__ if isinstance(kind, type) else kind
            raise ValueError(f"{name} must be {called}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The options of one of a Step's two handlers; `timeout` is in seconds."""

    timeout: float
    retry: RetryPolicy
    locks: tuple[AttributeLock, ...]
    load_maps: tuple[AttributeMap[Any], ...]
    load_instances: tuple[AttributeMapInstance, ...]
    load_channels: tuple[LoadedChannel, ...]
    durability: StepDurability | None
    heartbeat_timeout: float | None


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How a Step's handlers run; timeouts are seconds or timedeltas.

    With `execute_atomic` the handler runs inside the transaction that commits its result. `worker_target` is the
    queue whose workers run the Step; None means the run's, as it does for a durability. With a `heartbeat_timeout` an
    attempt fails that does not call `context.heartbeat` so often. `wait_for_failure` says what the last failure of
    `wait_for` leads to; `recovery_step`, set by `on_execute_failure_proceed_to`, takes over when `execute` has failed
    for good.
    """

    wait_for_method_timeout: float | timedelta = DEFAULT_METHOD_TIMEOUT
    execute_method_timeout: float | timedelta = DEFAULT_METHOD_TIMEOUT
    wait_for_retry: RetryPolicy = field(default_factory=RetryPolicy)
    execute_retry: RetryPolicy = field(default_factory=RetryPolicy)
    wait_for_lock_attributes: tuple[AttributeLock, ...] = ()
    execute_lock_attributes: tuple[AttributeLock, ...] = ()
    wait_for_load_attribute_maps: tuple[AttributeMap[Any], ...] = ()
    execute_load_attribute_maps: tuple[AttributeMap[Any], ...] = ()
    wait_for_load_attribute_map_instances: tuple[AttributeMapInstance, ...] = ()
    execute_load_attribute_map_instances: tuple[AttributeMapInstance, ...] = ()
    wait_for_load_channels: tuple[LoadedChannel, ...] = ()
    execute_load_channels: tuple[LoadedChannel, ...] = ()
    wait_for_durability: StepDurability | None = None
    execute_durability: StepDurability | None = None
    heartbeat_timeout: float | timedelta | None = None
    wait_for_failure: WaitForFailure = WaitForFailure.FAIL_FLOW
    recovery_step: StepRef | str | None = None
    execute_atomic: bool = False
    worker_target: str | None = None

    def __post_init__(self) -> None:
        _check_queue(self.worker_target)
        _check_kinds(self, {"wait_for_retry": RetryPolicy, "execute_retry": RetryPolicy, "execute_atomic": bool})
        for name in ("wait_for_method_timeout", "execute_method_timeout", "heartbeat_timeout"):
            if getattr(self, name) is None and name == "heartbeat_timeout":
                continue
            timeout = seconds(getattr(self, name), name)
            if timeout == 0:
                raise ValueError(f"{name} must be more than 0 seconds")
            object.__setattr__(self, name, timeout)
        for name in ("wait_for_durability", "execute_durability"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, StepDurability(getattr(self, name)))
        object.__setattr__(self, "wait_for_failure", WaitForFailure(self.wait_for_failure))
        for each in fields(self):
            if each.default == () and not isinstance(getattr(self, each.name), tuple):
                object.__setattr__(self, each.name, tuple(getattr(self, each.name)))

    def for_method(self, method: StepMethod) -> MethodOptions:
        """The options of one handler."""
        prefix = "wait_for" if method is StepMethod.WAIT_FOR else "execute"
        return MethodOptions(
            timeout=getattr(self, f"{prefix}_method_timeout"),
            retry=getattr(self, f"{prefix}_retry"),
            locks=getattr(self, f"{prefix}_lock_attributes"),
            load_maps=getattr(self, f"{prefix}_load_attribute_maps"),
            load_instances=getattr(self, f"{prefix}_load_attribute_map_instances"),
            load_channels=getattr(self, f"{prefix}_load_channels"),
            durability=getattr(self, f"{prefix}_durability"),
            heartbeat_timeout=cast("float | None", self.heartbeat_timeout),
        )

    def on_execute_failure_proceed_to(self, step: StepRef) -> StepOptions:
        """These options, with the Step that takes over, with the same input, when `execute` has failed for good."""
        return replace(self, recovery_step=step)

    def to_json(self) -> dict[str, Any]:
        """The options that differ from the defaults, as plain JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _to_plain(value) for name, value in plain.items() if value != getattr(_DEFAULTS, name)}

    @classmethod
    def from_json(
        cls, raw: Mapping[str, Any], definitions: Mapping[str, AttributeDefinition | ChannelDefinition]
    ) -> StepOptions:
        """The options that `to_json` wrote; `definitions` are the Attributes and Channels of the Flow by name."""
        return cls(**{name: _from_plain(name, value, definitions) for name, value in raw.items()})


_DEFAULTS = StepOptions()


def _to_plain(value: object) -> object:
    match value:
        case RetryPolicy():
            return value.to_json()
        case AttributeLock():
            return {"name": value.definition.name, "instance": value.instance, "whole_map": value.whole_map}
        case AttributeMapInstance():
            return {"name": value.definition.name, "instance": value.instance}
        case AttributeMap():
            return value.name
        case Channel() | ChannelMap() | ChannelMapInstance():
            return load_of(value)
        case tuple():
            return [_to_plain(item) for item in value]
        case _:
            return value


def _from_plain(option: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if option.endswith("_retry"):
        return RetryPolicy.from_json(value)
    if option.endswith("_lock_attributes"):
        return tuple(AttributeLock(definitions[raw["name"]], raw["instance"], raw["whole_map"]) for raw in value)
    if option.endswith("_load_attribute_maps"):
        return tuple(definitions[name] for name in value)
    if option.endswith("_load_attribute_map_instances"):
        return tuple(AttributeMapInstance(definitions[raw["name"]], raw["instance"]) for raw in value)
    if option.endswith("_load_channels"):
        return tuple(ChannelMapInstance(definitions[n], i) if i else definitions[n] for n, i in value)
    return value


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """Settings of one run; None leaves a setting as it is. `retention` is in seconds or a timedelta."""

    step_durability: StepDurability | None = None
    worker_target: str | None = None
    attribute_store_names: tuple[str, ...] | None = None
    retention: float | timedelta | None = None
    history_limit: int | None = None

    def __post_init__(self) -> None:
        _check_queue(self.worker_target)
        if self.retention is not None:
            object.__setattr__(self, "retention", seconds(self.retention, "retention"))
        if self.attribute_store_names is not None:
            object.__setattr__(self, "attribute_store_names", tuple(self.attribute_store_names))
        if self.step_durability is not None:
            object.__setattr__(self, "step_durability", StepDurability(self.step_durability))
        limit = self.history_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ValueError(f"history_limit must be a whole number, 1 or more, not {limit!r}")

    def to_json(self) -> dict[str, Any]:
        """The settings that are not None, as plain JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _to_plain(value) for name, value in plain.items() if value is not None}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> FlowConfig:
        """The settings that `to_json` wrote."""
        return cls(**raw)

    def merged(self, changes: FlowConfig) -> FlowConfig:
        """These settings with the non-None ones of `changes` in their place."""
        return FlowConfig.from_json({**self.to_json(), **changes.to_json()})


@dataclass(frozen=True, kw_only=True)
class InitialAttribute:
    """A value a run starts with; `instance` is '' for a singleton."""

    definition: AttributeDefinition
    instance: str
    value: object


@dataclass(frozen=True, kw_only=True)
class StartFlowOptions:
    """How a run starts; durations are seconds or timedeltas.

    `timeout` is the run's budget, and `timeout_policy` says what happens at its end; None means HANDLER where the Flow
    has a `handle_timeout`, else FAIL. `start_delay` delays the start Step only.
    """

    id_reuse_policy: IdReusePolicy = IdReusePolicy.DEFAULT
    timeout: float | timedelta | None = None
    timeout_policy: FlowTimeoutPolicy | None = None
    timeout_handler_options: StepOptions | None = None
    start_delay: float | timedelta = 0.0
    retry_policy: RetryPolicy | None = None
    config_override: FlowConfig = field(default_factory=FlowConfig)
    ignore_already_started: bool = False
    request_id: str | None = None
    initial_attributes: tuple[InitialAttribute, ...] = ()

    def __post_init__(self) -> None:
        _check_kinds(self, _START_KINDS)
        object.__setattr__(self, "id_reuse_policy", IdReusePolicy(self.id_reuse_policy))
        object.__setattr__(self, "start_delay", seconds(self.start_delay, "start_delay"))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds(self.timeout, "timeout"))
        if self.timeout_policy is not None:
            object.__setattr__(self, "timeout_policy", FlowTimeoutPolicy(self.timeout_policy))

    @overload
    def with_attribute(self, attribute: Attribute[T], value: T, /) -> StartFlowOptions: ...
    @overload
    def with_attribute(self, attribute: AttributeMap[T], instance: str, value: T, /) -> StartFlowOptions: ...
    def with_attribute(self, attribute: AttributeDefinition, /, *rest: Any) -> StartFlowOptions:
        """These options with one more initial value; a later one for the same place wins."""
        if len(rest) != (1 if isinstance(attribute, Attribute) else 2):
            raise TypeError("with_attribute takes (attribute, value) or (attribute_map, instance, value)")
        instance = "" if isinstance(attribute, Attribute) else check_instance(attribute.name, rest[0])
        added = InitialAttribute(definition=attribute, instance=instance, value=rest[-1])
        return replace(self, initial_attributes=(*self.initial_attributes, added))


_START_KINDS = {
    "timeout_handler_options": StepOptions | None,
    "retry_policy": RetryPolicy | None,
    "config_override": FlowConfig,
    "ignore_already_started": bool,
}


@dataclass(frozen=True, kw_only=True)
class StopFlowOptions:
    """How and why a run is stopped."""

    type: StopType = StopType.CANCEL
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", StopType(self.type))
        if not isinstance(self.reason, str):
            raise ValueError(f"reason must be a str, not {self.reason!r}")


@dataclass(frozen=True, kw_only=True)
class RPCInvokeOptions:
    """Locks and loads of map instances that the caller adds to an RPC's own."""

    lock_attribute_map_instances: tuple[AttributeLock, ...] = ()
    load_attribute_map_instances: tuple[AttributeMapInstance, ...] = ()
    load_channel_map_instances: tuple[ChannelMapInstance, ...] = ()

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, tuple(getattr(self, each.name)))
