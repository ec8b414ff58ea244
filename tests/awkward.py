"""Values that other systems change on the way, for every way that a value can take through this one.

`VALUES` holds (declared type, value) to be kept as they are, `REFUSED` those that are refused; `same` is stricter than
`==`: `-0.0`, the zeros at the end of a Decimal, the fold of a datetime and its zone all count.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

LISBON, LORD_HOWE = ZoneInfo("Europe/Lisbon"), ZoneInfo("Australia/Lord_Howe")

INTEGERS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**22, 2**200, -(2**200))
FLOATS = (0.0, -0.0, 0.1, 1.0, 1e16, 1e22, 1e308, -1e308, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308)
DECIMALS = tuple(
    Decimal(text)
    for text in (
        "0",
        "-0",
        "0.00",
        "1.10",
        "1E+3",
        "1E-28",
        "-1.50E-7",
        "1E+400",
        "12345678901234567890.1234567890123456789",
        "0.1",
    )
)
DATES = (date.min, date.max, date(2024, 2, 29), date(1582, 10, 15))
DATETIMES = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    datetime(1900, 1, 1, tzinfo=timezone(-timedelta(hours=23, minutes=59, seconds=59))),
    datetime(2026, 10, 25, 1, 30, tzinfo=LISBON),
    datetime(2026, 10, 25, 1, 30, tzinfo=LISBON, fold=1),
    datetime(2026, 4, 5, 1, 45, tzinfo=LORD_HOWE, fold=1),
    datetime(2026, 3, 29, 1, 30, tzinfo=LISBON),
)
TIMES = (time.min, time.max, time(12, 0, 0, 1), time(23, 59, tzinfo=timezone(timedelta(hours=-3, minutes=-30))))
TIMEDELTAS = (timedelta(0), timedelta.min, timedelta.max, timedelta(microseconds=1), -timedelta(microseconds=1))
TEXTS = (
    "",
    " ",
    " a\t\r\n",
    "null",
    "true",
    "0",
    "-0.0",
    "1e400",
    "NaN",
    "[]",
    '{"a": 1}',
    '"',
    "'; DROP TABLE dexflows_run; --",
    "\\u0000",
    "\x01\x1f\x7f\x85",
    "\u2028\u2029",
    "\ufeffa",
    "é",
    "e\u0301",
    "שלום \u202eabc",
    "مرحبا",
    "👩\u200d👩\u200d👧",
    "\U0010ffff",
    "\ufffe\uffff",
    "</script><b>%s{}${{7*7}}",
    "a/b",
    "100%",
    "%2F",
    "İıſß",
)
BYTES = (b"", b"\0", bytes(range(256)), b"null")
UUIDS = (UUID(int=0), UUID(int=2**128 - 1))

VALUES: tuple[tuple[Any, Any], ...] = tuple(
    (declared, value)
    for declared, values in (
        (int, INTEGERS),
        (float, FLOATS),
        (Decimal, DECIMALS),
        (date, DATES),
        (datetime, DATETIMES),
        (time, TIMES),
        (timedelta, TIMEDELTAS),
        (str, TEXTS),
        (bytes, BYTES),
        (UUID, UUIDS),
        (bool, (False, True)),
        (list[str], ([], ["", "null"])),
        (dict[str, int], ({}, {"": 0, " ": 1, "é": 2, "a.b": 3, "e\u0301": 4, "\u2028": 5})),  # as jsonb sorts
    )
    for value in values
)

REFUSED: tuple[tuple[Any, Any], ...] = (
    (int, True),
    (int, 10**4300),
    (float, float("nan")),
    (float, float("-inf")),
    (float, 1),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("sNaN")),
    (Decimal, Decimal("Infinity")),
    (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - no zone is what is refused
    (time, time(1, tzinfo=LISBON)),
    (str, "a\0b"),
    (str, "\ud83d"),
    (dict[str, int], {"\0": 1}),
    (dict[str, int], {1: 1}),
)


def same(one: object, other: object) -> bool:
    """Whether two values are of one type and look the same in every digit, and their zones too."""
    return type(one) is type(other) and repr(one) == repr(other)


def called(declared: Any, value: object) -> str:
    """A name of a value for pytest's `ids`."""
    shown = hex(value) if type(value) is int and abs(value) >= 2**64 else ascii(value)
    return f"{declared.__name__}:{shown[:40]}"
