"""Options of Steps, starts, stops and RPC calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, TypeVar, overload

from dexflows.attribute import (
    MAX_NAME_LENGTH,
    Attribute,
    AttributeDefinition,
    AttributeLock,
    AttributeMap,
    AttributeMapInstance,
    check_instance,
)
from dexflows.retry import RetryPolicy, seconds
from dexflows.states import IdReusePolicy, StepDurability, StepMethod, StopType

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


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The options of one of a Step's two handlers; `timeout` is in seconds."""

    timeout: float
    retry: RetryPolicy
    locks: tuple[AttributeLock, ...]
    load_maps: tuple[AttributeMap[Any], ...]
    load_instances: tuple[AttributeMapInstance, ...]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How a Step's handlers run; timeouts are seconds or timedeltas.

    With `execute_atomic` the handler runs inside the transaction that commits its result. `worker_target` is the
    queue whose workers run the Step; None means the run's.
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
    execute_atomic: bool = False
    worker_target: str | None = None

    def __post_init__(self) -> None:
        _check_queue(self.worker_target)
        for name in ("wait_for_method_timeout", "execute_method_timeout"):
            timeout = seconds(getattr(self, name), name)
            if timeout == 0:
                raise ValueError(f"{name} must be more than 0 seconds")
            object.__setattr__(self, name, timeout)
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
        )

    def to_json(self) -> dict[str, Any]:
        """The options that differ from the defaults, as plain JSON values."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _to_plain(value) for name, value in plain.items() if value != getattr(_DEFAULTS, name)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], attributes: Mapping[str, AttributeDefinition]) -> StepOptions:
        """The options that `to_json` wrote; `attributes` are the definitions of the Flow by name."""
        return cls(**{name: _from_plain(name, value, attributes) for name, value in raw.items()})


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
        case tuple():
            return [_to_plain(item) for item in value]
        case _:
            return value


def _from_plain(option: str, value: Any, attributes: Mapping[str, Any]) -> Any:
    if option.endswith("_retry"):
        return RetryPolicy.from_json(value)
    if option.endswith("_lock_attributes"):
        return tuple(AttributeLock(attributes[raw["name"]], raw["instance"], raw["whole_map"]) for raw in value)
    if option.endswith("_load_attribute_maps"):
        return tuple(attributes[name] for name in value)
    if option.endswith("_load_attribute_map_instances"):
        return tuple(AttributeMapInstance(attributes[raw["name"]], raw["instance"]) for raw in value)
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
    """How a run starts."""

    id_reuse_policy: IdReusePolicy = IdReusePolicy.DEFAULT
    retry_policy: RetryPolicy | None = None
    config_override: FlowConfig = field(default_factory=FlowConfig)
    ignore_already_started: bool = False
    request_id: str | None = None
    initial_attributes: tuple[InitialAttribute, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "id_reuse_policy", IdReusePolicy(self.id_reuse_policy))

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
    """Locks and loads the caller adds to an RPC's own."""

    lock_attribute_map_instances: tuple[AttributeLock, ...] = ()
    load_attribute_map_instances: tuple[AttributeMapInstance, ...] = ()

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, tuple(getattr(self, each.name)))
