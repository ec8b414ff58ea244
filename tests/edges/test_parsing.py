"""The JSON parser: what it refuses, and that what it takes is what was sent."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.exceptions import RequestDataTooBig
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django import Settings
from rest_framework.exceptions import ParseError, UnsupportedMediaType

from dexflows.api.parsing import MAX_DEPTH, StrictJSONParser, parse_json

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)

MALFORMED = {
    "nothing": b"",
    "not JSON": b"{emailAddress}",
    "cut off": b'{"a": [1, 2',
    "two values": b"{} {}",
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": Infinity}',
    "minus infinity": b'{"a": -Infinity}',
    "a float beyond the range": b'{"a": 1e400}',
    "a negative float beyond the range": b'{"a": -1e400}',
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a lone low surrogate": b'{"a": "\\udc00"}',
    "an integer of 4301 digits": b"1" * 4301,
    "a raw control character": b'{"a": "\n"}',
    "100,000 open brackets": b"[" * 100_000,
    "20,000 nested lists": b"[" * 20_000 + b"]" * 20_000,
    "20,000 nested objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_body_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        parse_json(body)


@hypothesis_settings(deadline=None, max_examples=50)
@given(JSON_VALUES)
def test_what_was_sent_is_what_is_read(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_the_depth_limit_is_exact(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"

    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    assert parse_json(nested(MAX_DEPTH))
    with pytest.raises(ParseError, match="deeper than 100"):
        parse_json(nested(MAX_DEPTH + 1))


def test_brackets_inside_strings_are_not_depth() -> None:
    assert parse_json(json.dumps(["[" * 500]).encode()) == ["[" * 500]


def test_a_wide_body_is_not_deep() -> None:
    assert parse_json(json.dumps([[]] * 500).encode()) == [[]] * 500


def test_the_last_of_two_equal_keys_wins() -> None:
    assert parse_json(b'{"a": 1, "a": 2}') == {"a": 2}


def test_a_body_over_the_limit_is_refused(settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert StrictJSONParser().parse(io.BytesIO(b'"12345678"')) == "12345678"
    with pytest.raises(RequestDataTooBig):
        StrictJSONParser().parse(io.BytesIO(b'"123456789"'))


@pytest.mark.parametrize("media_type", ["application/json; charset=latin-1", 'application/json;charset="utf-16"'])
def test_another_charset_is_refused(media_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        StrictJSONParser().parse(io.BytesIO(b"{}"), media_type)


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_utf8_may_be_named(media_type: str) -> None:
    assert StrictJSONParser().parse(io.BytesIO(b"{}"), media_type) == {}
