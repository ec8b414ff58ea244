"""Reads customers from a CSV file, row by row, and says what is wrong with a row by its line number."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from directory.conf import partition_count
from directory.partitioning import InvalidEmailAddressError, email_partition
from directory.profile import PROFILE_FIELDS, CustomerProfile, text_fault

# The csv module's own limit of 128 KiB a field would refuse texts that the directory takes.
_MAX_FIELD_CHARACTERS: Final = 4 * 1024 * 1024


class CustomerFileError(Exception):
    """The file cannot be read as customers at all: its header is not the expected one."""


@dataclass(frozen=True, slots=True)
class CustomerRow:
    """A good row: the profile and the partition it belongs to."""

    line: int
    profile: CustomerProfile
    instance: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no customer, and why."""

    line: int
    fault: str


def read_customers(path: Path) -> Iterator[CustomerRow | BadRow]:
    """The rows of ``path`` in file order, one at a time; raises ``CustomerFileError`` for a wrong header.

    ``line`` is the line on which a row begins. Empty lines are passed over. A byte order mark is allowed.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    # Bytes that are not UTF-8 become lone surrogates, which make that row a bad one instead of ending the file.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        columns = _columns(reader)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield BadRow(line, f"not well-formed CSV: {error}")
                continue
            if cells:
                yield _customer(line, columns, cells)


def _columns(reader: Iterator[list[str]]) -> list[str]:
    try:
        columns = next(reader)
    except (StopIteration, csv.Error):
        columns = []
    if sorted(columns) != sorted(PROFILE_FIELDS):
        found = ", ".join(columns) or "nothing"
        raise CustomerFileError(f"The first line must name the columns {', '.join(PROFILE_FIELDS)}; found {found}.")
    return columns


def _customer(line: int, columns: list[str], cells: list[str]) -> CustomerRow | BadRow:
    if len(cells) != len(columns):
        return BadRow(line, f"has {len(cells)} cells instead of {len(columns)}")
    texts = dict(zip(columns, cells, strict=True))
    for name in PROFILE_FIELDS:
        if fault := text_fault(texts[name]):
            return BadRow(line, f"{name}: {fault}")
    try:
        place = email_partition(texts["emailAddress"], partition_count())
    except InvalidEmailAddressError as error:
        return BadRow(line, f"emailAddress: {error}")
    profile = CustomerProfile(
        email_address=texts["emailAddress"],
        full_name=texts["fullName"],
        company_name=texts["companyName"],
        customer_tier=texts["customerTier"],
    )
    return CustomerRow(line, profile, place.instance)
