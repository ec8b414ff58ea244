"""Channels: durable queues of typed messages in one run, and the conditions and loads that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from dexflows.attribute import check_instance, check_name
from dexflows.codec import Codec, codec_for
from dexflows.errors import FlowDefinitionError

if TYPE_CHECKING:
    from dexflows.context import Context

__all__ = [
    "Channel",
    "ChannelCondition",
    "ChannelDefinition",
    "ChannelLoad",
    "ChannelMap",
    "ChannelMapInstance",
    "ChannelMessage",
    "LoadedChannel",
    "load_of",
]

T = TypeVar("T")
MAX_MESSAGES = 1_000_000
"""The most messages that one condition may ask for."""


@dataclass(frozen=True, kw_only=True)
class ChannelMessage(Generic[T]):
    """A message that waits in a Channel; `id` names it within its run and grows in the order of publishing."""

    id: str
    value: T


@dataclass(frozen=True, kw_only=True)
class ChannelCondition:
    """Waits for messages of one queue: needs `minimum`, and takes up to `maximum` (None: all that are queued)."""

    channel: ChannelDefinition
    instance: str
    minimum: int
    maximum: int | None
    condition_id: str | None = None

    def __post_init__(self) -> None:
        for bound in (self.minimum, self.maximum if self.maximum is not None else 0):
            if type(bound) is not int or not 0 <= bound <= MAX_MESSAGES:
                raise ValueError(f"a condition takes a whole number of messages up to {MAX_MESSAGES}, not {bound!r}")
        if self.maximum is not None and (self.maximum < self.minimum or self.maximum == 0):
            raise ValueError(f"a condition cannot need {self.minimum} messages and take at most {self.maximum}")

    def to_json(self) -> Mapping[str, Any]:
        """The condition as the SQL functions read it."""
        name, instance = self.channel.name, self.instance
        return {"channel": [name, instance], "min": self.minimum, "max": self.maximum}


class _Queues(Generic[T]):
    """What Channel and ChannelMap have in common; recognised by identity, never by name."""

    def __init__(self, name: str, type: type[T]) -> None:
        self.name = check_name("a Channel name", name)
        self.type = type

    @cached_property
    def codec(self) -> Codec[T]:
        """The codec of one message; FlowDefinitionError if the declared type is not supported."""
        return codec_for(self.type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Channel(_Queues[T]):
    """A durable first-in, first-out queue of messages: `approvals = Channel("approvals", bool)`."""

    def publish(self, context: Context, *values: T) -> None:
        """Append messages when the handler's result commits, in this order."""
        context.channels.publish(self, values)

    def for_one(self, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for exactly one message."""
        return self.for_n(1, condition_id=condition_id)

    def for_n(self, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for exactly `n` messages."""
        return _condition(self, "", _positive(n), n, condition_id)

    def at_least(self, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for `n` messages and take everything that is queued then."""
        return _condition(self, "", n, None, condition_id)

    def at_most(self, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for nothing, and take up to `n` messages."""
        return _condition(self, "", 0, _positive(n), condition_id)

    def for_range(self, at_least: int, at_most: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for `at_least` messages and take up to `at_most`."""
        return _condition(self, "", at_least, at_most, condition_id)

    def results(self, context: Context) -> list[T]:
        """In `execute`: the messages that this Step's wait took from here, oldest first."""
        return context.channels.taken(self)

    def pending(self, context: Context) -> list[ChannelMessage[T]]:
        """The queued messages of a loaded Channel, oldest first; the handler's own are not among them."""
        return context.channels.pending(self)

    def size(self, context: Context) -> int:
        """The number of messages that are queued; needs the Channel loaded."""
        return context.channels.size(self)

    def delete_message(self, context: Context, message_id: str) -> None:
        """Remove a queued message when the handler's result commits.

        The commit fails with ChannelMessageNotFoundError when it is not queued any more.
        """
        context.channels.delete(self, message_id)


class ChannelMap(_Queues[T]):
    """A family of Channels keyed at run time: `replies = ChannelMap("replies", str)`."""

    def publish(self, context: Context, instance: str, *values: T) -> None:
        """Append messages to one instance when the handler's result commits, in this order."""
        context.channels.publish(self, values, instance)

    def for_one(self, instance: str, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for exactly one message."""
        return self.for_n(instance, 1, condition_id=condition_id)

    def for_n(self, instance: str, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for exactly `n` messages."""
        return _condition(self, instance, _positive(n), n, condition_id)

    def at_least(self, instance: str, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for `n` messages and take everything that is queued then."""
        return _condition(self, instance, n, None, condition_id)

    def at_most(self, instance: str, n: int, *, condition_id: str | None = None) -> ChannelCondition:
        """Wait for nothing, and take up to `n` messages."""
        return _condition(self, instance, 0, _positive(n), condition_id)

    def for_range(
        self, instance: str, at_least: int, at_most: int, *, condition_id: str | None = None
    ) -> ChannelCondition:
        """Wait for `at_least` messages and take up to `at_most`."""
        return _condition(self, instance, at_least, at_most, condition_id)

    def results(self, context: Context, instance: str) -> list[T]:
        """In `execute`: the messages that this Step's wait took from one instance, oldest first."""
        return context.channels.taken(self, instance)

    def pending(self, context: Context, instance: str) -> list[ChannelMessage[T]]:
        """The queued messages of one loaded instance, oldest first; the handler's own are not among them."""
        return context.channels.pending(self, instance)

    def size(self, context: Context, instance: str) -> int:
        """The number of queued messages of one loaded instance."""
        return context.channels.size(self, instance)

    def get_all_instance_keys(self, context: Context) -> list[str]:
        """The keys of the instances that have queued messages, sorted; needs the whole map loaded."""
        return context.channels.instances(self)

    def delete_message(self, context: Context, instance: str, message_id: str) -> None:
        """Remove a queued message when the handler's result commits; see `Channel.delete_message`."""
        context.channels.delete(self, message_id, instance)

    def load(self, instance: str) -> ChannelMapInstance:
        """One instance to load, for Step options, `@rpc` and RPCInvokeOptions."""
        return ChannelMapInstance(self, check_instance(self.name, instance))


ChannelDefinition: TypeAlias = Channel[Any] | ChannelMap[Any]


@dataclass(frozen=True)
class ChannelMapInstance:
    """One instance of a ChannelMap, named for loading or for a decision."""

    definition: ChannelMap[Any]
    instance: str


LoadedChannel: TypeAlias = ChannelDefinition | ChannelMapInstance
"""What options may load: a Channel, a whole ChannelMap, or one of its instances."""

ChannelLoad: TypeAlias = tuple[str, str | None]
"""A load as names: Channel name, and instance ('' for a Channel, None for a whole map)."""


def _positive(n: int) -> int:
    if type(n) is not int or n < 1:
        raise ValueError(f"a condition takes 1 message or more, not {n!r}")
    return n


def _condition(
    channel: ChannelDefinition, instance: str, minimum: int, maximum: int | None, condition_id: str | None
) -> ChannelCondition:
    checked = instance if isinstance(channel, Channel) else check_instance(channel.name, instance)
    return ChannelCondition(
        channel=channel, instance=checked, minimum=minimum, maximum=maximum, condition_id=condition_id
    )


def load_of(loaded: LoadedChannel) -> ChannelLoad:
    """The names of a load. Raises FlowDefinitionError for what is none."""
    match loaded:
        case Channel():
            return loaded.name, ""
        case ChannelMap():
            return loaded.name, None
        case ChannelMapInstance():
            return loaded.definition.name, loaded.instance
        case _:
            raise FlowDefinitionError(f"{loaded!r} is no Channel, ChannelMap or instance of one")
