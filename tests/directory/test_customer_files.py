"""Reading customers from CSV files: good rows, bad rows by line, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import directory
from directory.customer_files import BadRow, CustomerFileError, CustomerRow, read_customers
from directory.partitioning import email_partition

HEADER = "emailAddress,fullName,companyName,customerTier\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "customers.csv"


def faults(file: Path) -> dict[int, str]:
    return {row.line: row.fault for row in read_customers(file) if isinstance(row, BadRow)}


def addresses(file: Path) -> list[str]:
    return [row.profile.email_address for row in read_customers(file) if isinstance(row, CustomerRow)]


def test_a_row_keeps_its_texts_and_knows_its_line_and_partition(file: Path) -> None:
    file.write_text(HEADER + ' Alice@Example.com ,"Ann, ""A""\nB",Ä & Ö,gold\n', encoding="utf-8")
    (row,) = read_customers(file)
    assert isinstance(row, CustomerRow)
    assert (row.line, row.instance) == (2, "partition-278")
    assert row.profile.full_name == 'Ann, "A"\nB'
    assert row.profile.company_name == "Ä & Ö"


def test_columns_may_come_in_any_order_and_after_a_byte_order_mark(file: Path) -> None:
    file.write_text("customerTier,companyName,fullName,emailAddress\ngold,C,F,a@b.c\n", encoding="utf-8-sig")
    (row,) = read_customers(file)
    assert isinstance(row, CustomerRow)
    assert (row.profile.email_address, row.profile.customer_tier) == ("a@b.c", "gold")


@pytest.mark.parametrize(
    "header",
    ["", "\n", "a@b.c,Ann,C,gold\n", "emailAddress,fullName,companyName\n", HEADER.replace("\n", ",emailAddress\n")],
    ids=["empty file", "empty line", "no header", "column missing", "column twice"],
)
def test_a_wrong_header_is_refused(file: Path, header: str) -> None:
    file.write_text(header, encoding="utf-8")
    with pytest.raises(CustomerFileError, match="must name the columns"):
        list(read_customers(file))


@pytest.mark.parametrize(
    "row",
    [
        b"a@b.c,Ann,C",
        b"a@b.c,Ann,C,gold,more",
        b",Ann,C,gold",
        b"  ,Ann,C,gold",
        "ü@b.c,Ann,C,gold".encode(),
        b"a@b.c,,C,gold",
        b"a@b.c,Ann,,gold",
        b"a@b.c,Ann,C,",
        b"a@b.c,A\x00n,C,gold",
        b"a@b.c,A\xffn,C,gold",
        b'a@b.c,"Ann"x,C,gold',
    ],
)
def test_a_bad_row_is_named_by_its_line_and_its_neighbours_are_read(file: Path, row: bytes) -> None:
    file.write_bytes(HEADER.encode() + b"x@b.c,X,C,gold\n" + row + b"\ny@b.c,Y,C,gold\n")
    assert list(faults(file)) == [3]
    assert addresses(file) == ["x@b.c", "y@b.c"]


def test_line_numbers_count_lines_inside_quotes_and_empty_lines(file: Path) -> None:
    file.write_text(HEADER + 'a@b.c,"two\nlines",C,gold\n\n\nb@b.c,,C,gold\n', encoding="utf-8")
    assert list(faults(file)) == [6]


def test_a_quote_that_is_never_closed_is_reported_where_it_opens(file: Path) -> None:
    file.write_text(HEADER + 'a@b.c,Ann,C,gold\nb@b.c,"Bob,C,gold\nc@b.c,Cy,C,gold\n', encoding="utf-8")
    assert list(faults(file)) == [3]
    assert addresses(file) == ["a@b.c"]


def test_the_bundled_sample_holds_500_customers_at_example_domains() -> None:
    rows = list(read_customers(Path(directory.__file__).parent / "data" / "sample_customers.csv"))
    good = [row for row in rows if isinstance(row, CustomerRow)]
    assert len(good) == len(rows) == 500
    assert len({email_partition(row.profile.email_address).canonical_email for row in good}) == 500
    assert all(row.profile.email_address.endswith((".com", ".org", ".net")) for row in good)
    assert all(".example." in row.profile.email_address.replace("@", ".") for row in good)
