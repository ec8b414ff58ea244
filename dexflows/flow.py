"""Flows: Steps, RPCs and a persistence schema under one name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from dexflows.attribute import AttributeLock, AttributeMap, AttributeMapInstance
from dexflows.channel import LoadedChannel
from dexflows.context import Context
from dexflows.decision import StepDecision
from dexflows.retry import seconds
from dexflows.schema import PersistenceSchema
from dexflows.step import Step

__all__ = ["DEFAULT_RPC_TIMEOUT", "MAX_RPC_TIMEOUT", "Flow", "RpcOptions", "StepList", "rpc"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_RPC_TIMEOUT = 10.0
MAX_RPC_TIMEOUT = 60.0


@dataclass(frozen=True, kw_only=True)
class StepList(Generic[T]):
    """The Steps of a Flow, of which at most one is the start Step with the Flow's input T."""

    start: tuple[Step[Any], ...] = ()
    others: tuple[Step[Any], ...] = ()

    @classmethod
    def start_step(cls, step: Step[T]) -> StepList[T]:
        """A Flow that begins with this Step."""
        return cls(start=(step,))

    @classmethod
    def without_start_step(cls, *steps: Step[Any]) -> StepList[T]:
        """A Flow whose Steps are all started by RPCs."""
        return cls(others=steps)

    @classmethod
    def empty(cls) -> StepList[T]:
        """A Flow with no Step, driven by RPCs alone."""
        return cls()

    def other_steps(self, *steps: Step[Any]) -> StepList[T]:
        """The same list with more Steps that are no start Step."""
        return replace(self, others=self.others + steps)


class Flow(Generic[T]):
    """A definition of durable work with input T; subclass, then `register` one instance."""

    def get_flow_type(self) -> str:
        """The name under which runs are stored; the class name unless overridden."""
        return type(self).__name__

    def get_steps(self) -> StepList[T]:
        """The Steps of the Flow; asked once, at registration."""
        return StepList.empty()

    def get_persistence_schema(self) -> PersistenceSchema:
        """The Attributes and Channels of the Flow; asked once, at registration."""
        return PersistenceSchema.of()

    def handle_timeout(self, context: Context) -> StepDecision | Awaitable[StepDecision]:
        """Decide what comes next when a run's timeout has come, where its policy is HANDLER.

        Runs once, as a Step execution beside those that are open. Unless it is overridden the policy is FAIL.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RpcOptions:
    """What `@rpc` was given; `timeout` is in seconds."""

    name: str | None = None
    timeout: float = DEFAULT_RPC_TIMEOUT
    lock_attributes: tuple[AttributeLock, ...] = ()
    load_attribute_maps: tuple[AttributeMap[Any], ...] = ()
    load_attribute_map_instances: tuple[AttributeMapInstance, ...] = ()
    load_channels: tuple[LoadedChannel, ...] = ()


@overload
def rpc(function: F, /) -> F: ...
@overload
def rpc(
    *,
    name: str | None = None,
    timeout: float | timedelta = DEFAULT_RPC_TIMEOUT,
    lock_attributes: tuple[AttributeLock, ...] = (),
    load_attribute_maps: tuple[AttributeMap[Any], ...] = (),
    load_attribute_map_instances: tuple[AttributeMapInstance, ...] = (),
    load_channels: tuple[LoadedChannel, ...] = (),
) -> Callable[[F], F]: ...
def rpc(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | timedelta = DEFAULT_RPC_TIMEOUT,
    lock_attributes: tuple[AttributeLock, ...] = (),
    load_attribute_maps: tuple[AttributeMap[Any], ...] = (),
    load_attribute_map_instances: tuple[AttributeMapInstance, ...] = (),
    load_channels: tuple[LoadedChannel, ...] = (),
) -> F | Callable[[F], F]:
    """Mark a Flow's method `(self, context[, input]) -> RPCResult[T] | None` as an RPC.

    `timeout` is in seconds or a timedelta, at most 60 s. An RPC is one transaction and never waits for a lock.
    """
    options = RpcOptions(
        name=name,
        timeout=seconds(timeout, "timeout"),
        lock_attributes=tuple(lock_attributes),
        load_attribute_maps=tuple(load_attribute_maps),
        load_attribute_map_instances=tuple(load_attribute_map_instances),
        load_channels=tuple(load_channels),
    )

    def mark(marked: F) -> F:
        marked.__dexflows_rpc__ = options  # type: ignore[attr-defined]
        return marked

    return mark if function is None else mark(function)
