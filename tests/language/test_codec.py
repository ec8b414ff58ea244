"""What the codec refuses, and where it says the fault is."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from dexflows.codec import MAX_DEPTH, MAX_INT_DIGITS, codec_for, codec_for_value, encode_output
from dexflows.errors import FlowDefinitionError, ValueMappingError, ValueTooLargeError
from tests.language.jsonb import through_jsonb


class Word(str):
    pass


class Level(enum.IntEnum):
    ONE = 1


class Color(enum.StrEnum):
    RED = "red"


@dataclass
class Inner:
    b: float
    ok: bool = True


@dataclass
class Outer:
    a: list[Inner]
    m: dict[str, str] = field(default_factory=dict)


@dataclass
class Special(Inner):
    extra: int = 0


@dataclass
class Positive:
    amount: int

    def __post_init__(self) -> None:
        if self.amount <= 0:
            raise ValueError("amount must be positive")


@dataclass
class Growing:
    amount: int

    def __post_init__(self) -> None:
        self.amount += 1


@dataclass
class Nest:
    inner: list[Nest]


class Pair(NamedTuple):
    left: int
    right: int = 0


class Person(TypedDict):
    name: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Shape(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    at: datetime | None = None
    prices: list[Decimal] = []
    width: Annotated[int, pydantic.Field(gt=0)] = pydantic.Field(default=1, alias="theWidth")


class Odd(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def shout(cls, text: str) -> str:
        return text + "!"


class Somewhere(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "somewhere"


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused

WRONG_VALUES: list[tuple[Any, Any, str]] = [
    (str, 5, "$"),
    (str, Word("a"), "$"),
    (str, Color.RED, "$"),
    (str, None, "$"),
    (str, "a\0", "$"),
    (str, "\ud800", "$"),
    (int, True, "$"),
    (int, Level.ONE, "$"),
    (int, 1.0, "$"),
    (bool, 1, "$"),
    (float, 1, "$"),
    (float, math.nan, "$"),
    (float, math.inf, "$"),
    (float | None, -math.inf, "$"),
    (Decimal, Decimal("NaN"), "$"),
    (Decimal, 1, "$"),
    (datetime, NAIVE, "$"),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "$"),
    (time, time(1, tzinfo=ZoneInfo("Europe/Berlin")), "$"),
    (bytes, bytearray(b"a"), "$"),
    (Color, "red", "$"),
    (list[int], (1,), "$"),
    (list[int], [1, "2"], "$[1]"),
    (list[int], [1, True], "$[1]"),
    (list[float], [1.0, math.nan], "$[1]"),
    (tuple[int, int], (1,), "$"),
    (tuple[int, str], (1, 2), "$[1]"),
    (set[int], frozenset({1}), "$"),
    (set[int], {"a"}, "$[0]"),
    (dict[str, int], {"a": 1, 2: 3}, "$['2']"),
    (dict[str, int], {"a b": "c"}, "$['a b']"),
    (dict[str, int], {"a\0": 1}, "$['a\\x00']"),
    (Inner, Special(1.0), "$"),
    (Outer, Outer([Inner(1.0), Inner(2)]), "$.a[1].b"),
    (Outer, Outer([], {"k": "\0"}), "$.m.k"),
    (Pair, Pair(1, "x"), "$[1]"),  # type: ignore[arg-type]
    (Pair, (1, 2), "$"),
    (Person, {"name": "a", "age": 1}, "$.age"),
    (Person, {}, "$.name"),
    (int | str, 1.5, "$"),
    (int | None, "1", "$"),
    (Positive, Positive.__new__(Positive), "$.amount"),
]


@pytest.mark.parametrize(("declared", "value", "path"), WRONG_VALUES)
def test_a_wrong_value_is_refused_with_its_path(declared: Any, value: Any, path: str) -> None:
    with pytest.raises(ValueMappingError) as refused:
        codec_for(declared).encode(value)
    assert refused.value.path == path
    assert str(refused.value) == f"{path}: {refused.value.reason}"


WRONG_JSON: list[tuple[Any, str, str]] = [
    (str, "5", "$"),
    (str, '"\\u0000"', "$"),
    (str, '"\\ud800"', "$"),
    (str, "\ud800", "$"),
    (int, "true", "$"),
    (int, "1.0", "$"),
    (int, "1e2", "$"),
    (int, "1" * (MAX_INT_DIGITS + 1), "$"),
    (float, "NaN", "$"),
    (float, "1e400", "$"),
    (float, "-1e400", "$"),
    (float, "1" * 400, "$"),
    (float, '"1.0"', "$"),
    (list[float], "[1.0, Infinity]", "$[1]"),
    (int, "", "$"),
    (int, "1 2", "$"),
    (list[int], "[1,]", "$"),
    (dict[str, int], "{'a': 1}", "$"),
    (dict[str, str], '{"\\u0000": "a"}', "$['\\x00']"),
    (Outer, '{"a": [{"b": 1e400}]}', "$.a[0].b"),
    (Outer, '{"a": [{}]}', "$.a[0].b"),
    (Outer, "[]", "$"),
    (Outer, '{"a": [], "unknown": NaN}', "$"),
    (Positive, '{"amount": 0}', "$"),
    (Strict, '{"a": 1, "c": 2}', "$.c"),
    (datetime, '"2026-01-01T00:00:00"', "$"),
    (datetime, '"2026-01-01T00:00:00+00:00[../etc/passwd]"', "$"),
    (datetime, '"2026-01-01T00:00:00+00:00[No/Where]"', "$"),
    (datetime, '"2026-01-01T00:00:00+00:00[America]"', "$"),
    (datetime, '"yesterday"', "$"),
    (datetime, "1767225600", "$"),
    (bytes, '"*"', "$"),
    (Decimal, '"sNaN"', "$"),
    (Decimal, '"one"', "$"),
    (Decimal, "1.5", "$"),
    (Color, '"blue"', "$"),
    (Level, "1.0", "$"),
    (Level, "true", "$"),
    (Pair, "[]", "$"),
    (Pair, "[1, 2, 3]", "$"),
    (Person, '{"name": 1}', "$.name"),
    (int | str, '{"$type": "float", "$value": 1}', "$['$type']"),
    (str | Decimal, '{"$type": "Decimal", "$value": "x"}', "$['$value']"),
    (Annotated[int, msgspec.Meta(gt=0)], "0", "$"),
    (Shape, '{"name": "a"}', "$"),
    (Shape, '{"name": "ab", "prices": ["1", 2]}', "$.prices[1]"),
]


@pytest.mark.parametrize(("declared", "raw", "path"), WRONG_JSON, ids=lambda each: str(each)[:40])
def test_wrong_json_is_refused_with_its_path(declared: Any, raw: str, path: str) -> None:
    with pytest.raises(ValueMappingError) as refused:
        codec_for(declared).decode(raw)
    assert refused.value.path == path


@pytest.mark.parametrize("raw", [b"\xff", b'"\xed\xa0\x80"', '"a"'.encode("utf-16")])
def test_bytes_that_are_not_utf8_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueMappingError):
        codec_for(str).decode(raw)


def test_a_backslash_that_only_looks_like_nul_is_kept() -> None:
    text = "\\u0000 and -0.0"
    assert codec_for(str).decode(codec_for(str).encode(text)) == text


@pytest.mark.parametrize("sign", [1, -1])
def test_an_int_has_as_many_digits_as_python_reads_and_no_more(sign: int) -> None:
    codec = codec_for(int | None)
    longest = sign * (10**MAX_INT_DIGITS - 1)
    assert codec.decode(codec.encode(longest)) == longest
    with pytest.raises(ValueMappingError, match="digits"):
        codec.encode(longest + sign)


BOUNDLESS: Any = TypeVar("BOUNDLESS")


@pytest.mark.parametrize(
    "declared",
    [
        object,
        Any,
        list,
        dict,
        tuple,
        set,
        complex,
        bytearray,
        Word,
        BOUNDLESS,
        list[Any],
        dict[int, str],
        Sequence[int],
        Mapping[str, int],
        list[int] | list[str],
        dict[str, int] | Person,
        tuple[int, str] | tuple[int, int],
        set[list[int]],
        set[Inner],
        "str",
        ...,
        int | Any,
    ],
    ids=str,
)
def test_a_type_that_cannot_be_stored_exactly_is_refused_when_it_is_declared(declared: Any) -> None:
    with pytest.raises(FlowDefinitionError):
        codec_for(declared)


def test_a_refused_field_is_named() -> None:
    @dataclass
    class Loose:
        anything: list[object]

    with pytest.raises(FlowDefinitionError, match=r"Loose\.anything"):
        codec_for(Loose)


def test_types_with_state_outside_their_fields_are_refused() -> None:
    @dataclass
    class Named(dict[str, int]):
        name: str

    @dataclass
    class Seeded:
        kept: int
        seed: InitVar[int]

    class Extra(pydantic.BaseModel, extra="allow"):
        a: int

    for declared in (Named, Seeded, Extra, pydantic.RootModel[int]):
        with pytest.raises(FlowDefinitionError):
            codec_for(declared)


def nested(depth: int) -> Nest:
    node = Nest([])
    for _ in range(depth // 2 - 1):
        node = Nest([node])
    return node


def test_values_may_nest_to_the_limit_and_not_deeper() -> None:
    codec = codec_for(Nest)
    assert codec.decode(codec.encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 2, 20_000):
        with pytest.raises(ValueMappingError, match="deeper than 100"):
            codec.encode(nested(depth))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 2_000, 20_000])
def test_json_that_nests_too_deep_is_refused(depth: int) -> None:
    raw = '{"inner":[' * (depth // 2) + "]}" * (depth // 2)
    with pytest.raises(ValueMappingError, match="deeper than 100"):
        codec_for(Nest).decode(raw)
    with pytest.raises(ValueMappingError):
        codec_for(list[int]).decode("[" * depth + "]" * depth)


def test_a_value_inside_itself_is_refused() -> None:
    node = Nest([])
    node.inner.append(node)
    loop: list[Any] = []
    loop.append(loop)
    for refused in (lambda: codec_for(Nest).encode(node), lambda: encode_output(loop)):
        with pytest.raises(ValueMappingError, match="deeper than 100"):
            refused()


def test_outputs_nest_to_the_limit() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert json.loads(encode_output(value)) == value
    with pytest.raises(ValueMappingError):
        encode_output([value])


def test_a_value_at_the_size_limit_is_taken_and_one_byte_more_is_not() -> None:
    codec = codec_for(str)
    assert len(codec.encode("x" * 98, limit=100)) == 100
    with pytest.raises(ValueTooLargeError) as refused:
        codec.encode("x" * 99, key="status", limit=100)
    assert (refused.value.key, refused.value.size, refused.value.limit) == ("status", 101, 100)
    assert isinstance(refused.value, ValueMappingError)


def test_the_default_limit_is_four_mebibytes() -> None:
    with pytest.raises(ValueTooLargeError):
        codec_for(str).encode("x" * 4 * 1024 * 1024)


def test_decoding_calls_post_init_so_that_it_can_validate() -> None:
    assert codec_for(Positive).decode('{"amount": 2}') == Positive(2)
    with pytest.raises(ValueMappingError, match="amount must be positive"):
        codec_for(list[Positive]).decode('[{"amount": 1}, {"amount": -1}]')


@pytest.mark.parametrize("value", [Growing(1), Odd(text="a")])
def test_a_type_whose_own_code_changes_the_value_is_refused_when_it_is_written(value: Any) -> None:
    with pytest.raises(ValueMappingError, match="does not come back equal"):
        codec_for(type(value)).encode(value)


def test_a_pydantic_model_comes_back_equal() -> None:
    shape = Shape(name="square", at=datetime(2026, 1, 1, tzinfo=UTC), prices=[Decimal("1.10")], theWidth=3)
    codec = codec_for(Shape)
    back = codec.decode(through_jsonb(codec.encode(shape)))
    assert back == shape
    assert str(back.prices[0]) == "1.10"


def test_a_zone_that_cannot_be_named_is_refused_unless_it_comes_back_equal() -> None:
    value = datetime(2026, 1, 1, tzinfo=Somewhere())
    assert codec_for(datetime).decode(codec_for(datetime).encode(value)) == value


def test_an_ambiguous_wall_time_keeps_its_fold_and_zone() -> None:
    codec = codec_for(datetime)
    for fold in (0, 1):
        value = datetime(2026, 11, 1, 1, 30, fold=fold, tzinfo=ZoneInfo("America/Los_Angeles"))
        back = codec.decode(codec.encode(value))
        assert (back, back.fold, back.tzinfo) == (value, fold, value.tzinfo)


def test_a_wall_time_that_no_clock_shows_is_kept_as_it_is() -> None:
    codec = codec_for(datetime)
    for fold in (0, 1):
        value = datetime(2026, 3, 8, 2, 30, fold=fold, tzinfo=ZoneInfo("America/Los_Angeles"))
        back = codec.decode(codec.encode(value))
        assert (back, back.fold, back.hour) == (value, fold, 2)


def test_a_stored_instant_is_kept_when_the_rules_of_its_zone_have_changed() -> None:
    back = codec_for(datetime).decode('"2026-01-01T12:00:00+05:00[Europe/Berlin]"')
    assert back == datetime(2026, 1, 1, 7, tzinfo=UTC)


def test_missing_fields_get_their_defaults_and_unknown_ones_are_ignored() -> None:
    assert codec_for(Inner).decode('{"b": 1, "later": [1]}') == Inner(1.0)
    assert codec_for(Outer).decode('{"a": []}') == Outer([])
    assert codec_for(Pair).decode("[1]") == Pair(1)
    assert codec_for(Person).decode('{"name": "a", "later": 1}') == {"name": "a"}


def test_each_member_of_a_union_is_named_only_where_it_must_be() -> None:
    codec = codec_for(str | Decimal | int | Inner | dict[str, int])
    assert codec.encode("a") == '"a"'
    assert codec.encode({"a": 1}) == '{"a":1}'
    assert json.loads(codec.encode(Decimal("1.0"))) == {"$type": "Decimal", "$value": "1.0"}
    assert json.loads(codec.encode(Inner(1.5)))["$type"] == "Inner"
    assert codec_for(Inner | None).encode(Inner(1.5)) == '{"b":1.5,"ok":true}'


def test_the_order_of_a_union_does_not_matter() -> None:
    first, second = codec_for(Inner | Outer), codec_for(Outer | Inner)
    for value in (Inner(1.0), Outer([])):
        assert second.decode(first.encode(value)) == value


def test_unnamed_json_is_read_by_the_only_member_that_fits() -> None:
    codec = codec_for(Inner | Outer)
    assert codec.decode('{"a": []}') == Outer([])
    assert codec.decode('{"b": 1.0}') == Inner(1.0)
    with pytest.raises(ValueMappingError, match="several of"):
        codec.decode('{"a": [], "b": 1.0}')


def test_a_value_of_an_unsupported_class_cannot_be_an_output() -> None:
    for value in (object(), [object()], {1: 2}, {"a": {1, object()}}, NAIVE, Word("a")):
        with pytest.raises(ValueMappingError):
            encode_output(value)


def test_a_value_is_stored_by_the_class_it_has() -> None:
    assert codec_for_value(Inner(1.0)).decode(encode_output(Inner(1.0))) == Inner(1.0)
    assert codec_for_value([1]).decode(encode_output([1, (2, None)])) == [1, [2, None]]
    assert encode_output(None) == "null"


def test_each_reading_of_a_type_uses_one_codec() -> None:
    assert codec_for(list[int]) is codec_for(list[int])
    assert codec_for(None) is codec_for(type(None))
    assert repr(codec_for(dict[str, int])) == "Codec(dict[str, int])"
