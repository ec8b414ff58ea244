"""Attributes: the durable typed values of a run, and the locks and loads that name them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import quote

from dexflows.codec import Codec, codec_for
from dexflows.errors import FlowDefinitionError, ValueMappingError

if TYPE_CHECKING:
    from dexflows.context import Context

__all__ = [
    "Attribute",
    "AttributeDefinition",
    "AttributeIndex",
    "AttributeLock",
    "AttributeMap",
    "AttributeMapInstance",
    "IndexType",
    "check_instance",
    "check_name",
    "physical_name",
]

T = TypeVar("T")
MAX_NAME_LENGTH = 255
MAX_INSTANCE_BYTES = 512


class IndexType(StrEnum):
    """How the search index keeps an Attribute's values."""

    KEYWORD = "KEYWORD"
    """Text compared as a whole."""
    FULL_TEXT = "FULL_TEXT"
    """Text matched by its words."""
    KEYWORD_ARRAY = "KEYWORD_ARRAY"
    """Several keywords; `=` asks whether one is among them."""
    INT = "INT"
    """Whole numbers."""
    DOUBLE = "DOUBLE"
    """Floating-point numbers."""
    BOOL = "BOOL"
    """True or false."""
    DATETIME = "DATETIME"
    """Instants."""


@dataclass(frozen=True)
class AttributeIndex:
    """The index key an Attribute writes; a singleton's key defaults to its name, a map needs one."""

    type: IndexType
    key: str | None = None


def check_instance(name: str, instance: object) -> str:
    """The instance key if it may name an instance of the map `name`, else ValueMappingError."""
    reason = _instance_fault(instance)
    if reason:
        raise ValueMappingError("$", f"instance key of {name}: {reason}")
    return cast("str", instance)


def _instance_fault(instance: object) -> str:
    if type(instance) is not str:
        return f"must be a str, not {type(instance).__name__}"
    if not instance:
        return "must not be empty"
    if "/" in instance or "\0" in instance:
        return "must not contain '/' or U+0000"
    try:
        size = len(instance.encode())
    except UnicodeEncodeError:
        return "must not contain a lone surrogate"
    return f"takes {size} bytes, more than {MAX_INSTANCE_BYTES}" if size > MAX_INSTANCE_BYTES else ""


def physical_name(name: str, instance: str = "") -> str:
    """How a stored value and its lock are called: `name`, or `name/percent-encoded-instance`."""
    return f"{name}/{quote(instance, safe='')}" if instance else name


class _Definition(Generic[T]):
    """What Attribute and AttributeMap have in common; recognised by identity, never by name."""

    def __init__(
        self,
        name: str,
        value_type: type[T],
        default: T | None,
        index: AttributeIndex | None,
        hard_delete_on_null: bool,
        sync_to_attribute_store: bool,
    ) -> None:
        self.name = check_name("an Attribute name", name)
        self.type = value_type
        self.default = default
        self.index = index
        self.hard_delete_on_null = hard_delete_on_null
        self.sync_to_attribute_store = sync_to_attribute_store

    @cached_property
    def codec(self) -> Codec[T]:
        """The codec of one value; FlowDefinitionError if the declared type is not supported."""
        return codec_for(self.type)

    @cached_property
    def default_json(self) -> str | None:
        """The default as JSON text, so that each reading gets a value of its own."""
        return None if self.default is None else self.codec.encode(self.default, key=self.name)

    def fresh_default(self) -> T | None:
        """A value of its own equal to the declared default, or None."""
        raw = self.default_json
        return None if raw is None else self.codec.decode(raw)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def check_name(what: str, name: object) -> str:
    """The name if it may name a definition, else FlowDefinitionError; `what` is what a refusal calls it."""
    if type(name) is not str or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise FlowDefinitionError(f"{what} must be a str of 1 to {MAX_NAME_LENGTH} characters, not {name!r}")
    if "/" in name or not name.isprintable():
        raise FlowDefinitionError(f"{what} must not contain '/' or control characters: {name!r}")
    return name


class Attribute(_Definition[T]):
    """A durable typed value of a run: `status = Attribute("status", str)`.

    Reading an absent value gives `default`, else None; setting None deletes.
    """

    def __init__(
        self,
        name: str,
        type: type[T],
        *,
        default: T | None = None,
        index: AttributeIndex | None = None,
        hard_delete_on_null: bool = False,
        sync_to_attribute_store: bool = False,
    ) -> None:
        super().__init__(name, type, default, index, hard_delete_on_null, sync_to_attribute_store)

    def get(self, context: Context) -> T | None:
        """The value as this handler sees it, its own writes included."""
        return cast("T | None", context.attributes.get(self))

    def set(self, context: Context, value: T | None) -> None:
        """Write the value when the handler's result commits; None deletes."""
        context.attributes.set(self, value)

    def delete(self, context: Context) -> None:
        """Delete the value; deleting what is absent succeeds."""
        context.attributes.delete(self)

    def lock(self) -> AttributeLock:
        """The lock of this Attribute, for Step options and `@rpc`."""
        return AttributeLock(self)


class AttributeMap(_Definition[T]):
    """A family of durable typed values of a run, keyed at run time: `progress = AttributeMap("progress", str)`."""

    def __init__(
        self,
        name: str,
        value_type: type[T],
        *,
        default: T | None = None,
        index: AttributeIndex | None = None,
        hard_delete_on_null: bool = False,
        sync_to_attribute_store: bool = False,
        entries: bool = False,
    ) -> None:
        super().__init__(name, value_type, default, index, hard_delete_on_null, sync_to_attribute_store)
        self.entries = entries

    def get(self, context: Context, instance: str) -> T | None:
        """The value of a loaded instance as this handler sees it, its own writes included."""
        return cast("T | None", context.attributes.get(self, instance))

    def set(self, context: Context, instance: str, value: T | None) -> None:
        """Write one instance when the handler's result commits; None deletes. Needs no load."""
        context.attributes.set(self, value, instance)

    def delete(self, context: Context, instance: str) -> None:
        """Delete one instance; deleting what is absent succeeds. Needs no load."""
        context.attributes.delete(self, instance)

    def get_map_size(self, context: Context) -> int:
        """The number of instances; needs the whole map loaded."""
        return context.attributes.size(self)

    def get_all_instance_keys(self, context: Context) -> list[str]:
        """The keys of all instances in sorted order; needs the whole map loaded."""
        return context.attributes.instances(self)

    def lock(self, instance: str) -> AttributeLock:
        """The lock of one instance, for Step options, `@rpc` and RPCInvokeOptions."""
        return AttributeLock(self, check_instance(self.name, instance))

    def lock_all(self) -> AttributeLock:
        """The lock of the whole map, which excludes every lock of its instances."""
        return AttributeLock(self, whole_map=True)

    def load(self, instance: str) -> AttributeMapInstance:
        """One instance to load, for Step options, `@rpc` and RPCInvokeOptions."""
        return AttributeMapInstance(self, check_instance(self.name, instance))


AttributeDefinition: TypeAlias = Attribute[Any] | AttributeMap[Any]


@dataclass(frozen=True)
class AttributeLock:
    """What a handler locks: a singleton, one map instance, or a whole map."""

    definition: AttributeDefinition
    instance: str | None = None
    whole_map: bool = False

    @property
    def key(self) -> str:
        """The physical name that holders share: `name`, `name/instance` or `name/*`."""
        if self.whole_map:
            return f"{self.definition.name}/*"
        return physical_name(self.definition.name, self.instance or "")


@dataclass(frozen=True)
class AttributeMapInstance:
    """One instance of a map, named for loading."""

    definition: AttributeMap[Any]
    instance: str
