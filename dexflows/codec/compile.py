"""From a declared type to its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from dexflows.codec.containers import plan_dict, plan_fixed_tuple, plan_list, plan_set, plan_variadic_tuple
from dexflows.codec.plan import Misfit, Plan
from dexflows.codec.records import (
    is_pydantic_model,
    plan_dataclass,
    plan_named_tuple,
    plan_pydantic,
    plan_struct,
    plan_typed_dict,
)
from dexflows.codec.scalars import SCALAR_PLANS, plan_enum, plan_literal
from dexflows.codec.unions import plan_union
from dexflows.errors import FlowDefinitionError


class Compiler:
    """Makes the plan of one declared type; a type met again inside itself becomes a reference to its plan."""

    def __init__(self) -> None:
        self._open: dict[Any, list[Plan]] = {}
        self._made: dict[Any, Plan] = {}

    def plan(self, declared: Any) -> Plan:
        """The plan of a type, or FlowDefinitionError if the type is not supported."""
        if declared is None:
            declared = NoneType
        try:
            if declared in SCALAR_PLANS:
                return SCALAR_PLANS[declared]
            if declared in self._made:
                return self._made[declared]
            if declared in self._open:
                return _reference(declared, self._open[declared])
        except TypeError:
            raise _unsupported(declared) from None
        self._open[declared] = slot = []
        try:
            slot.append(self._special(declared) or self._class(declared))
        finally:
            del self._open[declared]
        if not slot[0].recursive:
            self._made[declared] = slot[0]
        return slot[0]

    def _special(self, declared: Any) -> Plan | None:
        origin, arguments = get_origin(declared), get_args(declared)
        if isinstance(declared, NewType):
            return self.plan(declared.__supertype__)
        if type(declared).__name__ == "TypeAliasType":
            return self.plan(declared.__value__)
        if origin is Annotated:
            return self._annotated(declared, arguments[0], arguments[1:])
        if origin in (Union, UnionType):
            return plan_union([self.plan(each) for each in arguments])
        if origin is Literal:
            return self._literal(declared, arguments)
        if origin in _CONTAINERS:
            return _CONTAINERS[origin](self, arguments)
        return None

    def _literal(self, declared: Any, values: tuple[Any, ...]) -> Plan:
        if any(type(each) not in (str, int, bool, NoneType) for each in values):
            raise _unsupported(declared)
        return plan_literal(values)

    def _annotated(self, declared: Any, bare: Any, metadata: tuple[Any, ...]) -> Plan:
        plan = self.plan(bare)
        if not any(isinstance(each, msgspec.Meta) for each in metadata):
            return plan

        def constrained(value: Any) -> Any:
            try:
                msgspec.convert(value, declared)
            except msgspec.ValidationError as error:
                raise Misfit(str(error)) from None
            return value

        dump, load = plan.dump, plan.load
        return dataclasses.replace(
            plan,
            dump=lambda value: (dump(value), constrained(value))[0],
            load=lambda wire: constrained(load(wire)),
            check=None,
            exact=False,
        )

    def _class(self, declared: Any) -> Plan:
        origin = get_origin(declared) or declared
        if not isinstance(origin, type):
            raise _unsupported(declared)
        if issubclass(origin, Enum):
            return plan_enum(origin)
        if is_typeddict(origin):
            return plan_typed_dict(origin, _name_of(declared), _hints(declared, origin), self.plan)
        names = _field_names(origin)
        if names is None:
            raise _unsupported(declared)
        hints = _hints(declared, origin)
        fields = {name: self._field(origin, name, hints) for name in names}
        if issubclass(origin, tuple):
            return plan_named_tuple(origin, _name_of(declared), fields)
        if is_pydantic_model(origin):
            return plan_pydantic(origin, _name_of(declared), fields)
        make: Any = plan_struct if issubclass(origin, msgspec.Struct) else plan_dataclass
        made: Plan = make(origin, _name_of(declared), fields, native=not get_args(declared))
        return made

    def _field(self, origin: type, name: str, hints: dict[str, Any]) -> Plan:
        if name not in hints:
            raise FlowDefinitionError(f"{origin.__name__}.{name} has no annotation")
        try:
            return self.plan(hints[name])
        except FlowDefinitionError as error:
            raise FlowDefinitionError(f"{origin.__name__}.{name}: {error}") from None


def _field_names(origin: type) -> tuple[str, ...] | None:
    """The names of the fields of a record type, or None if it is none."""
    if is_pydantic_model(origin):
        return tuple(origin.model_fields)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(origin):
        return tuple(each.name for each in dataclasses.fields(origin))
    if issubclass(origin, msgspec.Struct):
        return origin.__struct_fields__
    if issubclass(origin, tuple) and origin is not tuple:
        return getattr(origin, "_fields", None)
    return None


def _hints(declared: Any, origin: type) -> dict[str, Any]:
    """The annotations of a record type, with the arguments of a generic one in place."""
    try:
        hints = _resolved(origin)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise FlowDefinitionError(f"the annotations of {origin.__name__} cannot be read: {error}") from error
    parameters = getattr(origin, "__parameters__", ())
    given = dict(zip(parameters, get_args(declared), strict=False))
    return {name: _substituted(hint, given) for name, hint in hints.items()}


def _resolved(origin: type) -> dict[str, Any]:
    try:
        return get_type_hints(origin, include_extras=True)
    except NameError:
        # A class made inside a function cannot be found by its name, but it may name itself.
        return get_type_hints(origin, localns={**vars(origin), origin.__name__: origin}, include_extras=True)


def _substituted(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not parameters or not given:
        return hint
    return hint[tuple(given.get(each, each) for each in parameters)]


def _reference(declared: Any, slot: list[Plan]) -> Plan:
    """The plan of a type inside itself, looked up when it is used."""
    origin = get_origin(declared) or declared
    is_class = isinstance(origin, type)
    return Plan(
        name=_name_of(declared),
        dump=lambda value: slot[0].dump(value),
        load=lambda wire: slot[0].load(wire),
        python_types=(origin,) if is_class else (),
        shapes=frozenset((list if is_class and issubclass(origin, (list, tuple, set, frozenset)) else dict,)),
        recursive=True,
    )


def _name_of(declared: Any) -> str:
    if get_args(declared):
        return str(declared).replace(f"{getattr(get_origin(declared), '__module__', '')}.", "")
    return getattr(declared, "__name__", str(declared))


def _unsupported(declared: Any) -> FlowDefinitionError:
    advice = _ADVICE.get(declared, "") if isinstance(declared, type) or declared is Any else ""
    return FlowDefinitionError(f"values of type {_name_of(declared)} cannot be stored{advice}")


_ADVICE = {
    list: "; name the type of the items, as in list[str]",
    tuple: "; name the types of the items, as in tuple[str, ...]",
    set: "; name the type of the items, as in set[str]",
    frozenset: "; name the type of the items, as in frozenset[str]",
    dict: "; name the types of keys and values, as in dict[str, int]",
    object: "; name the types it can have, as in int | str",
    Any: "; name the types it can have, as in int | str",
}


def _list(compiler: Compiler, arguments: tuple[Any, ...]) -> Plan:
    return plan_list(compiler.plan(arguments[0]))


def _tuple(compiler: Compiler, arguments: tuple[Any, ...]) -> Plan:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return plan_variadic_tuple(compiler.plan(arguments[0]))
    return plan_fixed_tuple(tuple(compiler.plan(each) for each in arguments))


def _set(compiler: Compiler, arguments: tuple[Any, ...]) -> Plan:
    return plan_set(set, compiler.plan(arguments[0]))


def _frozenset(compiler: Compiler, arguments: tuple[Any, ...]) -> Plan:
    return plan_set(frozenset, compiler.plan(arguments[0]))


def _dict(compiler: Compiler, arguments: tuple[Any, ...]) -> Plan:
    if arguments[0] is not str:
        raise FlowDefinitionError(f"the keys of a dict must be str, not {_name_of(arguments[0])}")
    return plan_dict(compiler.plan(arguments[1]))


_CONTAINERS: dict[Any, Callable[[Compiler, tuple[Any, ...]], Plan]] = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    dict: _dict,
}
