"""Plans of types with named fields: dataclasses, msgspec Structs, TypedDicts, NamedTuples and pydantic models."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NotRequired, Required, get_args, get_origin

import msgspec

from dexflows.codec.plan import Misfit, Plan, Wire, any_recursive, any_verify, mismatch
from dexflows.errors import FlowDefinitionError

_HOLDS_MORE = (dict, list, tuple, set, frozenset, str, bytes, int, float, BaseException)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One field: its attribute, its JSON key, its plan and how to make it when it is absent."""

    name: str
    key: str
    plan: Plan
    default: Callable[[], Any] | None = None


def plan_dataclass(declared: type, name: str, fields: dict[str, Plan], *, native: bool) -> Plan:
    """A dataclass by its fields; restored without calling `__init__`, then `__post_init__` runs if there is one."""
    _refuse_hidden_state(declared)
    listed = []
    for each in dataclasses.fields(declared):
        listed.append(Field(name=each.name, key=each.name, plan=fields[each.name], default=_dataclass_default(each)))
        native = native and each.init
    post_init = getattr(declared, "__post_init__", None)
    set_field = object.__setattr__

    def build(values: dict[str, Any]) -> Any:
        made: Any = object.__new__(declared)
        for key, value in values.items():
            set_field(made, key, value)
        if post_init is not None:
            post_init(made)
        return made

    return _record(declared, name, listed, build, native=native, runs_code=post_init is not None)


def _refuse_hidden_state(declared: type) -> None:
    if issubclass(declared, _HOLDS_MORE):
        raise FlowDefinitionError(f"{declared.__name__}: its base class holds state that is not in its fields")
    for each in getattr(declared, "__dataclass_fields__", {}).values():
        if each._field_type is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]
            raise FlowDefinitionError(f"{declared.__name__}.{each.name}: an InitVar is not kept, so it cannot return")


def _dataclass_default(each: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory
    if each.default is not dataclasses.MISSING:
        return _always(each.default)
    return None


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def plan_struct(declared: type[msgspec.Struct], name: str, fields: dict[str, Plan], *, native: bool) -> Plan:
    """A msgspec Struct by its fields under their encoded names."""
    config = declared.__struct_config__
    listed = [
        Field(name=each.name, key=each.encode_name, plan=fields[each.name], default=_struct_default(each))
        for each in msgspec.structs.fields(declared)
    ]
    return _record(
        declared,
        name,
        listed,
        lambda values: declared(**values),
        native=native and not config.array_like and config.tag is None,
        runs_code=hasattr(declared, "__post_init__"),
        closed=config.forbid_unknown_fields,
    )


def _struct_default(each: msgspec.structs.FieldInfo) -> Callable[[], Any] | None:
    if each.default_factory is not msgspec.NODEFAULT:
        factory: Callable[[], Any] = each.default_factory
        return factory
    if each.default is not msgspec.NODEFAULT:
        return _always(each.default)
    return None


def is_pydantic_model(declared: object) -> bool:
    """Whether this is a pydantic model class; pydantic itself is never imported for this."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(declared, type) and issubclass(declared, pydantic.BaseModel)


def plan_pydantic(declared: Any, name: str, fields: dict[str, Plan]) -> Plan:
    """A pydantic model by its fields; validated by the model when it is read."""
    if declared.model_config.get("extra") == "allow" or declared.__pydantic_root_model__:
        raise FlowDefinitionError(f"{name}: models with extra fields and root models are not supported")
    aliases = {}
    for field_name, info in declared.model_fields.items():
        aliases[field_name] = info.validation_alias or info.alias or field_name
        if not isinstance(aliases[field_name], str):
            raise FlowDefinitionError(f"{name}.{field_name}: only a plain alias is supported")
    listed = [
        Field(
            name=field_name,
            key=field_name,
            plan=fields[field_name],
            default=None if info.is_required() else partial(info.get_default, call_default_factory=True),
        )
        for field_name, info in declared.model_fields.items()
    ]
    by_name = bool(declared.model_config.get("populate_by_name") or declared.model_config.get("validate_by_name"))

    def build(values: dict[str, Any]) -> Any:
        return declared.model_validate(values if by_name else {aliases[key]: value for key, value in values.items()})

    return _record(declared, name, listed, build, native=False, runs_code=True)


def _record(
    declared: type,
    name: str,
    fields: list[Field],
    build: Callable[[dict[str, Any]], Any],
    *,
    native: bool,
    runs_code: bool,
    closed: bool = False,
) -> Plan:
    plans = [each.plan for each in fields]
    return Plan(
        name=name,
        dump=_record_dumper(declared, name, fields),
        load=_record_loader(name, fields, build, closed=closed),
        python_types=(declared,),
        shapes=frozenset((dict,)),
        check=_record_check(declared, fields) if native else None,
        recursive=any_recursive(plans),
        verify=runs_code or any_verify(plans),
    )


def _record_dumper(declared: type, name: str, fields: list[Field]) -> Callable[[Any], Wire]:
    walks = [(each.name, each.key, each.plan.dump) for each in fields]

    def dump(value: Any) -> Wire:
        if type(value) is not declared:
            raise mismatch(name, value)
        wire = {}
        for attribute, key, walk in walks:
            try:
                wire[key] = walk(getattr(value, attribute))
            except Misfit as fault:
                raise fault.at(key) from None
            except AttributeError:
                raise Misfit("this field was never set").at(key) from None
        return wire

    return dump


def _record_loader(
    name: str, fields: list[Field], build: Callable[[dict[str, Any]], Any], *, closed: bool
) -> Callable[[Wire], Any]:
    walks = [(each.name, each.key, each.plan.load, each.default) for each in fields]
    known = {each.key for each in fields}

    def load(wire: Wire) -> Any:
        if type(wire) is not dict:
            raise mismatch(name, wire)
        if closed and not wire.keys() <= known:
            raise Misfit("unknown field").at(min(wire.keys() - known))
        values = {}
        for attribute, key, walk, default in walks:
            if key in wire:
                try:
                    values[attribute] = walk(wire[key])
                except Misfit as fault:
                    raise fault.at(key) from None
            elif default is None:
                raise Misfit("this field is missing").at(key)
            else:
                values[attribute] = default()
        return _built(name, build, values)

    return load


def _built(name: str, build: Callable[[dict[str, Any]], Any], values: dict[str, Any]) -> Any:
    try:
        return build(values)
    except (ValueError, TypeError) as error:
        listed = getattr(error, "errors", None)
        reason = listed()[0]["msg"] if callable(listed) else str(error)
        raise Misfit(f"not a {name}: {reason}") from error


def _record_check(declared: type, fields: list[Field]) -> Callable[[Any], bool] | None:
    """The quick check: the types of all fields at once where that is enough, else field by field."""
    checks = [(attrgetter(each.name), each.plan.check) for each in fields if each.plan.check is not None]
    if len(checks) != len(fields) or not fields:
        return None
    if len(fields) > 1 and all(each.plan.exact for each in fields):
        expected = tuple(each.plan.python_types[0] for each in fields)
        read = attrgetter(*(each.name for each in fields))
        return lambda value: type(value) is declared and tuple(map(type, read(value))) == expected
    return lambda value: type(value) is declared and all(check(get(value)) for get, check in checks)


def plan_typed_dict(declared: Any, name: str, hints: dict[str, Any], plan_of: Callable[[Any], Plan]) -> Plan:
    """A TypedDict; keys it does not name are refused when written and ignored when read."""
    required, plans = set(), {}
    for key, hint in hints.items():
        needed, bare = _required(hint, default=key in declared.__required_keys__)
        plans[key] = plan_of(bare)
        if needed:
            required.add(key)

    def walk(values: Any, walks: dict[str, Callable[[Any], Any]], *, strict: bool) -> dict[str, Any]:
        if type(values) is not dict:
            raise mismatch(name, values)
        walked = {}
        for key, value in values.items():
            if key in walks:
                try:
                    walked[key] = walks[key](value)
                except Misfit as fault:
                    raise fault.at(key) from None
            elif strict:
                raise Misfit(f"{name} has no such key").at(str(key))
        for key in hints:
            if key in required and key not in walked:
                raise Misfit("this key is missing").at(key)
        return walked

    dumps = {key: plan.dump for key, plan in plans.items()}
    loads = {key: plan.load for key, plan in plans.items()}
    return Plan(
        name=name,
        dump=lambda value: walk(value, dumps, strict=True),
        load=lambda wire: walk(wire, loads, strict=False),
        python_types=(dict,),
        shapes=frozenset((dict,)),
        recursive=any_recursive(plans.values()),
        verify=any_verify(plans.values()),
    )


def _required(hint: Any, *, default: bool) -> tuple[bool, Any]:
    origin = get_origin(hint)
    if origin in (Required, NotRequired):
        return origin is Required, get_args(hint)[0]
    return default, hint


def plan_named_tuple(declared: Any, name: str, fields: dict[str, Plan]) -> Plan:
    """A NamedTuple as an array; fields with defaults may be absent at its end."""
    names, defaults = declared._fields, declared._field_defaults
    plans = [fields[each] for each in names]

    def dump(value: Any) -> Wire:
        if type(value) is not declared:
            raise mismatch(name, value)
        return _walk_places([plan.dump for plan in plans], value)

    def load(wire: Wire) -> Any:
        if type(wire) is not list:
            raise mismatch(name, wire)
        if not len(names) - len(defaults) <= len(wire) <= len(names):
            raise Misfit(f"expected {len(names)} items, got {len(wire)}")
        return declared(*_walk_places([plan.load for plan in plans], wire))

    return Plan(
        name=name,
        dump=dump,
        load=load,
        python_types=(declared,),
        shapes=frozenset((list,)),
        recursive=any_recursive(plans),
        verify=any_verify(plans),
    )


def _walk_places(walks: list[Callable[[Any], Any]], values: Any) -> list[Any]:
    walked = []
    for index, (walk, value) in enumerate(zip(walks, values, strict=False)):
        try:
            walked.append(walk(value))
        except Misfit as fault:
            raise fault.at(index) from None
    return walked
