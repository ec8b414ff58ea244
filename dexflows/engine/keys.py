"""Naming a Step execution, and naming what a handler locks and loads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from dexflows.attribute import Attribute, AttributeDefinition, AttributeLock, AttributeMap, AttributeMapInstance
from dexflows.channel import ChannelLoad, LoadedChannel, load_of
from dexflows.options import MethodOptions, StepOptions
from dexflows.registry import FlowDefinition, StepDefinition
from dexflows.states import StepMethod


@dataclass(frozen=True, slots=True)
class StepKey:
    """Which Step execution to look at, and the queue whose workers do."""

    run_id: UUID
    flow_type: str
    step_type: str
    number: int
    queue: str

    @property
    def step_execution_id(self) -> str:
        return f"{self.step_type}-{self.number}"


def step_keys(run_id: UUID, rings: str) -> list[StepKey]:
    """Read what the SQL functions return as references: [[flow type, step type, number, queue], ...].

    A reference to a Step of another run than `run_id` has that run's ID as a fifth part.
    """
    if rings == "[]":
        return []
    return [StepKey(UUID(row[4]) if len(row) > 4 else run_id, *row[:4]) for row in msgspec.json.decode(rings)]


@dataclass(frozen=True, slots=True)
class LockSet:
    """De-duplicated lock keys in sorted order.

    An instance lock takes its own key exclusively and its whole map's key shared; a whole-map lock takes the map's
    key exclusively and so covers its instances.
    """

    exclusive: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, locks: Iterable[AttributeLock]) -> "LockSet":
        locks = tuple(locks)
        if not locks:
            return _NO_LOCKS
        whole = {lock.definition.name for lock in locks if lock.whole_map}
        parts = [lock for lock in locks if lock.whole_map or lock.definition.name not in whole]
        touched = {f"{lock.definition.name}/*" for lock in parts if not lock.whole_map and lock.instance is not None}
        return cls(tuple(sorted({lock.key for lock in parts})), tuple(sorted(touched)))

    def conflicts(self, other: "LockSet") -> tuple[str, ...]:
        """The keys of `other` that cannot be taken while these are held."""
        mine, shared = set(self.exclusive), set(self.shared)
        wanted = [key for key in other.exclusive if key in mine or key in shared]
        return (*wanted, *(key for key in other.shared if key in mine))

    @property
    def arrays(self) -> tuple[str | None, str | None]:
        """Both as array literals; NULLs when there is no lock."""
        return (array_literal(self.exclusive), array_literal(self.shared)) if self.exclusive else (None, None)


_NO_LOCKS = LockSet()
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"'})


def array_literal(keys: Iterable[str]) -> str:
    """Texts as a PostgreSQL array literal, which costs a tenth of an adapted list."""
    return "{" + ",".join(f'"{key.translate(_QUOTED)}"' for key in keys) + "}"


@dataclass(frozen=True, slots=True)
class LoadSet:
    """Which committed values a handler may read; `json` is what the SQL functions take."""

    maps: frozenset[str]
    instances: frozenset[tuple[str, str]]
    channels: frozenset[ChannelLoad]
    json: str | None

    @classmethod
    def of(
        cls,
        attributes: Mapping[str, AttributeDefinition],
        maps: Iterable[AttributeMap[Any]],
        instances: Iterable[AttributeMapInstance],
        channels: Iterable[LoadedChannel] = (),
    ) -> "LoadSet":
        names = [name for name, definition in attributes.items() if isinstance(definition, Attribute)]
        whole = frozenset(each.name for each in maps)
        single = frozenset((each.definition.name, each.instance) for each in instances)
        queues = frozenset(load_of(each) for each in channels)
        wanted: dict[str, Any] = {}
        if names:
            wanted["names"] = names
        if whole:
            wanted["maps"] = sorted(whole)
        if single:
            wanted["instances"] = sorted(single)
        if queues:
            wanted["channels"] = sorted(queues, key=lambda load: (load[0], load[1] or ""))
        return cls(whole, single, queues, msgspec.json.encode(wanted).decode() if wanted else None)


@dataclass(frozen=True, slots=True)
class MethodPlan:
    """One handler's options, ready for the SQL functions."""

    options: MethodOptions
    locks: LockSet
    load: LoadSet

    @property
    def allowed_seconds(self) -> float:
        """How long an attempt may run before its first heartbeat."""
        timeout, heartbeat = self.options.timeout, self.options.heartbeat_timeout
        return timeout if heartbeat is None else min(timeout, heartbeat)

    def to_json(self) -> dict[str, Any]:
        load = msgspec.Raw((self.load.json or "null").encode())
        plan: dict[str, Any] = {"timeout": self.options.timeout, "load": load}
        if self.options.durability is not None:
            plan["durability"] = self.options.durability
        if self.options.heartbeat_timeout is not None:
            plan["heartbeat"] = self.options.heartbeat_timeout
        if self.locks.exclusive:
            plan |= {"x": self.locks.exclusive, "s": self.locks.shared}
        return plan


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A Step's options of both handlers; `json` is what a claim takes."""

    step_options: StepOptions
    methods: Mapping[StepMethod, MethodPlan]
    json: str

    @classmethod
    def of(cls, flow: FlowDefinition, options: StepOptions) -> "StepPlan":
        methods = {method: _method_plan(flow, options.for_method(method)) for method in StepMethod}
        return cls(options, methods, msgspec.json.encode({m.value: p.to_json() for m, p in methods.items()}).decode())


def _method_plan(flow: FlowDefinition, options: MethodOptions) -> MethodPlan:
    load = LoadSet.of(flow.attributes, options.load_maps, options.load_instances, options.load_channels)
    return MethodPlan(options, LockSet.of(options.locks), load)


@lru_cache(maxsize=4096)
def _declared_plan(flow: FlowDefinition, step_type: str) -> StepPlan:
    return StepPlan.of(flow, flow.steps[step_type].options)


def plan_of(flow: FlowDefinition, step: StepDefinition) -> StepPlan:
    """The plan that the running code declares for a Step."""
    return _declared_plan(flow, step.step_type)
