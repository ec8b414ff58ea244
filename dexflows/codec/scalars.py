"""Plans of the values that hold no other values."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from types import NoneType
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from dexflows.codec.plan import Misfit, Plan, Wire, mismatch

T = TypeVar("T")
MAX_INT_DIGITS = 4300
"""The most decimal digits of an int: CPython's own default limit for reading one."""
_INT_BOUND = 10**MAX_INT_DIGITS
_EXPONENT_FROM = 1e16


def text_fault(value: str) -> str:
    """Why PostgreSQL cannot store this text, or ''."""
    if "\0" in value:
        return "contains U+0000"
    if value.isascii():
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return ""


def check_text(value: str) -> str:
    """The text itself, if PostgreSQL can store it."""
    if fault := text_fault(value):
        raise Misfit(fault)
    return value


def _exactly(expected: type[T], then: Callable[[T], Any]) -> Callable[[Any], Any]:
    name = expected.__name__

    def walk(value: Any) -> Any:
        if type(value) is not expected:
            raise mismatch(name, value)
        return then(value)

    return walk


def _same(value: Any) -> Any:
    return value


def _check_int(value: int) -> int:
    if not -_INT_BOUND < value < _INT_BOUND:
        raise Misfit(f"an int of more than {MAX_INT_DIGITS} digits")
    return value


def _dump_float(value: float) -> Wire:
    if not math.isfinite(value):
        raise Misfit(f"{value} is not a finite number")
    if value == 0 and math.copysign(1, value) < 0:
        return "-0.0"  # jsonb's numeric has no negative zero
    if abs(value) >= _EXPONENT_FROM:
        return msgspec.Raw(f"{Decimal(repr(value)):f}.0".encode())  # jsonb prints 1e22 without a point, as an int
    return value


def _load_float(wire: Wire) -> float:
    if wire == "-0.0":
        return -0.0
    if type(wire) is not float and type(wire) is not int:
        raise mismatch("float", wire)
    try:
        value = float(wire)
    except OverflowError:
        raise Misfit("too large for a float") from None
    if not math.isfinite(value):
        raise Misfit("not a finite number")
    return value


def _float_is_plain(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _leaf(python_type: type[T], dump: Callable[[T], Any], load: Callable[[Any], Any], *shapes: type) -> Plan:
    return Plan(
        name=python_type.__name__,
        dump=_exactly(python_type, dump),
        load=load,
        python_types=(python_type,),
        shapes=frozenset(shapes or (str,)),
    )


def _native(python_type: type[T], dump: Callable[[T], Any], load: Callable[[Any], Any], shape: type = str) -> Plan:
    return Plan(
        name=python_type.__name__,
        dump=_exactly(python_type, dump),
        load=load,
        python_types=(python_type,),
        shapes=frozenset((shape,)),
        check=lambda value: type(value) is python_type,
        exact=True,
        natural=shape if shape is python_type else None,
    )


def _text_of(value: object) -> str:
    return msgspec.json.encode(value)[1:-1].decode()


def _from_text(python_type: type[T]) -> Callable[[Any], T]:
    name = python_type.__name__

    def load(wire: Wire) -> T:
        if type(wire) is not str:
            raise mismatch(name, wire)
        try:
            return msgspec.convert(wire, python_type)
        except msgspec.ValidationError:
            raise Misfit(f"not a {name}") from None

    return load


def _dump_datetime(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is None:
        raise Misfit("a datetime without a time zone")
    _check_offset(offset)
    key = getattr(value.tzinfo, "key", None) if type(value.tzinfo) is ZoneInfo else None
    text = value.isoformat() if key is None else f"{value.isoformat()}[{key}]"
    if key is None and type(value.tzinfo) is not timezone and _load_datetime(text) != value:
        raise Misfit(f"a datetime whose time zone {type(value.tzinfo).__name__} cannot be stored")
    return text


def _load_datetime(wire: Wire) -> datetime:
    if type(wire) is not str:
        raise mismatch("datetime", wire)
    text, bracket, key = wire.partition("[")
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is None:
            raise Misfit("a datetime without a time zone")
        return _in_zone(value, ZoneInfo(key.removesuffix("]"))) if bracket else value
    except (ValueError, KeyError, OSError, OverflowError):
        raise Misfit("not a datetime") from None


def _in_zone(value: datetime, zone: ZoneInfo) -> datetime:
    """The wall time in the zone, with the fold its offset tells; by instant where the zone's rules have changed."""
    wall = value.replace(tzinfo=zone)
    for fold in (0, 1):
        if wall.replace(fold=fold).utcoffset() == value.utcoffset():
            return wall.replace(fold=fold)
    return value.astimezone(zone)


def _check_offset(offset: timedelta) -> None:
    if offset.microseconds:  # CPython 3.11 reads +00:00:00.000001 as UTC
        raise Misfit("a time zone offset with a fraction of a second")


def _dump_time(value: time) -> str:
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        raise Misfit("a time with a time zone that is no fixed offset")
    _check_offset(value.utcoffset() or timedelta())
    return value.isoformat()


def _load_time(wire: Wire) -> time:
    if type(wire) is not str:
        raise mismatch("time", wire)
    try:
        return time.fromisoformat(wire)
    except ValueError:
        raise Misfit("not a time") from None


def _dump_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Misfit(f"{value} is not a finite number")
    return str(value)


def _load_decimal(wire: Wire) -> Decimal:
    if type(wire) is not str:
        raise mismatch("Decimal, as a string", wire)
    try:
        value = Decimal(wire)
    except InvalidOperation:
        raise Misfit("not a Decimal") from None
    if not value.is_finite():
        raise Misfit("not a finite number")
    return value


FLOAT = Plan(
    name="float",
    dump=_exactly(float, _dump_float),
    load=_load_float,
    python_types=(float,),
    shapes=frozenset((float, int)),
    check=_float_is_plain,
    natural=float,
)
SCALAR_PLANS: dict[type, Plan] = {
    NoneType: _native(NoneType, _same, _exactly(NoneType, _same), NoneType),
    bool: _native(bool, _same, _exactly(bool, _same), bool),
    int: _native(int, _check_int, _exactly(int, _check_int), int),
    float: FLOAT,
    str: _native(str, check_text, _exactly(str, check_text), str),
    bytes: _native(bytes, _text_of, _from_text(bytes)),
    UUID: _native(UUID, str, _from_text(UUID)),
    date: _native(date, date.isoformat, _from_text(date)),
    timedelta: _native(timedelta, _text_of, _from_text(timedelta)),
    datetime: _leaf(datetime, _dump_datetime, _load_datetime),
    time: _leaf(time, _dump_time, _load_time),
    Decimal: _leaf(Decimal, _dump_decimal, _load_decimal),
}


def plan_enum(declared: type[Enum]) -> Plan:
    """An Enum by its values where all are str or all are int, by its names otherwise; a Flag by its bits."""
    if issubclass(declared, Flag):
        return _leaf(declared, lambda value: int(value.value), _flag_loader(declared), int)
    values = [each.value for each in declared]
    by_value = _uniform(values) and not any(type(each) is str and text_fault(each) for each in values)
    wire_of = {each: each.value if by_value else name for name, each in declared.__members__.items()}
    wire_of.update({each: each.value if by_value else each.name for each in declared})
    found = {(type(wire), wire): each for each, wire in wire_of.items()}
    if not by_value:
        found.update({(str, name): each for name, each in declared.__members__.items()})

    def load(wire: Wire) -> Enum:
        member = found.get((type(wire), wire)) if type(wire) in (str, int) else None
        if member is None:
            raise Misfit(f"not a {declared.__name__}")
        return member

    shapes = {type(wire) for wire in wire_of.values()} or {str}
    return _leaf(declared, wire_of.__getitem__, load, *shapes)


def _uniform(values: list[Any]) -> bool:
    return all(type(each) is str for each in values) or all(type(each) is int for each in values)


def _flag_loader(declared: type[Flag]) -> Callable[[Wire], Flag]:
    def load(wire: Wire) -> Flag:
        if type(wire) is not int:
            raise mismatch(declared.__name__, wire)
        try:
            value = declared(wire)
        except ValueError:
            raise Misfit(f"not a {declared.__name__}") from None
        if not isinstance(value, declared):
            raise Misfit(f"not a {declared.__name__}")
        return value

    return load


def plan_literal(values: tuple[Any, ...]) -> Plan:
    """One of the listed str, int, bool and None values."""
    allowed = {(type(each), each) for each in values}
    name = f"one of {', '.join(map(repr, values))}"

    def walk(value: Any) -> Any:
        if type(value) not in (str, int, bool, NoneType) or (type(value), value) not in allowed:
            raise mismatch(name, value) if type(value) is not str else Misfit(f"expected {name}")
        return value

    types = tuple(dict.fromkeys(type(each) for each in values))
    return Plan(name=name, dump=walk, load=walk, python_types=types, shapes=frozenset(types))
