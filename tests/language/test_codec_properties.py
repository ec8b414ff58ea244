"""What goes into the codec comes back equal, in value and type, also after jsonb has re-printed it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dexflows.codec import codec_for, encode_output
from dexflows.errors import ValueMappingError
from tests.language.jsonb import through_jsonb

T = TypeVar("T")


class Tier(enum.StrEnum):
    GOLD = "gold"
    BASIC = "basic"


class Size(enum.IntEnum):
    S = 1
    L = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    NONE = None


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass
class Profile:
    email: str
    tier: str
    score: float = 0.0
    age: int | None = None


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: Literal["EUR", "USD"] = "EUR"


@dataclass
class Order:
    id: UUID
    lines: list[tuple[str, int, Money]]
    tags: set[str] = field(default_factory=set)
    at: datetime | None = None
    payer: Profile | str | None = None


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    item: T


class Point(NamedTuple):
    x: float
    y: float | int = 0


class Settings(TypedDict):
    name: str
    limit: NotRequired[int]


class Renamed(msgspec.Struct, rename="camel", omit_defaults=True):
    first_name: str
    last_score: float = 1.0
    raw: bytes = b""


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
ints = st.integers() | st.integers(min_value=-(10**400), max_value=10**400)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 1e16, 1e22, 1e308, 5e-324, 1.0])
offsets = st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
zones = st.sampled_from(["UTC", "America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe"]).map(ZoneInfo)
fold = st.sampled_from([0, 1])
moments = st.builds(
    lambda moment, fold: moment.replace(fold=fold),
    st.datetimes(timezones=offsets | zones)
    | st.datetimes(datetime(2026, 11, 1), datetime(2026, 11, 2), timezones=zones)  # noqa: DTZ001 - zones come from `timezones`
    | st.datetimes(datetime(2026, 3, 8), datetime(2026, 3, 9), timezones=zones),  # noqa: DTZ001
    fold,
)
decimals = st.decimals(allow_nan=False, allow_infinity=False) | st.just(Decimal("1.10"))
profiles = st.builds(Profile, texts, texts, floats, st.none() | ints)
money = st.builds(Money, decimals, st.sampled_from(["EUR", "USD"]))
orders = st.builds(
    Order,
    st.uuids(),
    st.lists(st.tuples(texts, ints, money), max_size=3),
    st.sets(texts, max_size=3),
    st.none() | moments,
    st.none() | texts | profiles,
)
trees = st.recursive(st.builds(Tree, ints), lambda inner: st.builds(Tree, ints, st.lists(inner, max_size=3)))
wrapped = st.fixed_dictionaries({"$type": texts, "$value": texts})

CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "str": (str, texts),
    "bool": (bool, st.booleans()),
    "int": (int, ints),
    "float": (float, floats),
    "bytes": (bytes, st.binary()),
    "None": (None, st.none()),
    "datetime": (datetime, moments),
    "date": (date, st.dates()),
    "time": (time, st.times(timezones=st.none() | offsets)),
    "timedelta": (timedelta, st.timedeltas()),
    "UUID": (UUID, st.uuids()),
    "Decimal": (Decimal, decimals),
    "StrEnum": (Tier, st.sampled_from(Tier)),
    "IntEnum": (Size, st.sampled_from(Size)),
    "Enum of objects": (Odd, st.sampled_from(Odd)),
    "Flag": (Access, st.sampled_from([Access(0), Access.READ, Access.READ | Access.WRITE])),
    "list": (list[int], st.lists(ints)),
    "list of lists of floats": (list[list[float]], st.lists(st.lists(floats))),
    "tuple": (tuple[int, str, float], st.tuples(ints, texts, floats)),
    "empty tuple": (tuple[()], st.just(())),
    "variadic tuple": (tuple[date, ...], st.lists(st.dates()).map(tuple)),
    "set": (set[int | str], st.sets(ints | texts)),
    "frozenset of tuples": (frozenset[tuple[int, str]], st.frozensets(st.tuples(ints, texts))),
    "dict": (dict[str, float], st.dictionaries(texts, floats)),
    "dict of anything plain": (
        dict[str, list[int] | str | bool | float | int | None],
        st.dictionaries(texts, st.lists(ints) | texts | st.booleans() | floats | ints | st.none()),
    ),
    "int or float": (int | float, ints | floats),
    "optional float": (float | None, floats | st.none()),
    "float or str": (float | str, floats | texts | st.just("-0.0")),
    "bool or int": (bool | int, st.booleans() | ints),
    "strings of many types": (
        str | datetime | date | UUID | Decimal | bytes | Tier | timedelta,
        texts | moments | st.dates() | st.uuids() | decimals | st.binary() | st.sampled_from(Tier) | st.timedeltas(),
    ),
    "arrays of many types": (
        list[int] | set[int] | tuple[int, ...] | Point,
        st.lists(ints) | st.sets(ints) | st.lists(ints).map(tuple) | st.builds(Point, floats, floats | ints),
    ),
    "objects of many types": (
        Profile | Money | dict[str, str] | None,
        profiles | money | st.dictionaries(texts, texts) | wrapped | st.none(),
    ),
    "dict that looks wrapped": (dict[str, str] | None, wrapped | st.none()),
    "dataclass": (Profile, profiles),
    "nested dataclasses": (Order, orders),
    "dict of dataclasses": (dict[str, Profile], st.dictionaries(texts, profiles)),
    "recursive dataclass": (Tree, trees),
    "generic dataclass": (Box[list[Decimal]], st.builds(Box, st.lists(decimals))),
    "NamedTuple": (Point, st.builds(Point, floats, floats | ints)),
    "TypedDict": (Settings, st.fixed_dictionaries({"name": texts}, optional={"limit": ints})),
    "Struct": (Renamed, st.builds(Renamed, texts, floats, st.binary())),
    "Literal": (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),
}


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    match left:
        case float():
            return math.copysign(1, left) == math.copysign(1, right)
        case list() | tuple():
            return all(map(same, left, right))
        case set() | frozenset():
            return all(map(same, sorted(left, key=repr), sorted(right, key=repr)))
        case dict():
            return all(same(value, right[key]) for key, value in left.items())
        case datetime():
            return left.utcoffset() == right.utcoffset() and str(left.tzinfo) == str(right.tzinfo)
        case Decimal():
            return str(left) == str(right)
        case msgspec.Struct() | Profile() | Money() | Order() | Tree() | Box():
            return all(same(getattr(left, name), getattr(right, name)) for name in type(left).__annotations__)
    return True


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_comes_back_equal_in_value_and_type(case: str, data: st.DataObject) -> None:
    declared, strategy = CASES[case]
    value = data.draw(strategy)
    codec = codec_for(declared)
    text = codec.encode(value)
    assert same(codec.decode(text), value)
    stored = through_jsonb(text)
    assert same(codec.decode(stored), value)
    assert same(codec.decode(stored.encode()), value)


@pytest.mark.parametrize(
    "case", ["str", "int", "float", "datetime", "list", "dict", "tuple", "nested dataclasses", "Struct"]
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_stored_by_its_own_class_is_read_by_its_declared_type(case: str, data: st.DataObject) -> None:
    declared, strategy = CASES[case]
    value = data.draw(strategy)
    assert same(codec_for(declared).decode(through_jsonb(encode_output(value))), value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=json_values)
def test_json_from_outside_is_read_or_refused_and_what_is_read_can_be_stored(case: str, value: Any) -> None:
    codec = codec_for(CASES[case][0])
    try:
        read = codec.decode(msgspec.json.encode(value))
    except (ValueMappingError, UnicodeEncodeError):
        return
    assert same(codec.decode(through_jsonb(codec.encode(read))), read)
