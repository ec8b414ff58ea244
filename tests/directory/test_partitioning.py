"""The partition of an e-mail address: the published vectors, and what must hold for every address."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directory.partitioning import InvalidEmailAddressError, email_partition, fnv1a32

VECTORS = json.loads((Path(__file__).parent / "vectors" / "email_partitions.json").read_text(encoding="utf-8"))
WHITESPACE = " \t\n\v\f\r"
ascii_text = st.text(st.characters(max_codepoint=127), min_size=1)


@pytest.mark.parametrize("vector", VECTORS["accepted"], ids=lambda vector: repr(vector["input"]))
def test_an_accepted_vector_gives_the_published_partition(vector: dict[str, str | int]) -> None:
    partition = email_partition(str(vector["input"]))
    assert (partition.canonical_email, partition.fnv1a32, partition.instance) == (
        vector["canonical"],
        vector["fnv1a32"],
        vector["partition"],
    )


@pytest.mark.parametrize("address", VECTORS["rejected"], ids=repr)
def test_a_rejected_vector_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="e-mail address"):
        email_partition(address)


@pytest.mark.parametrize("address", [None, 5, b"alice@example.com", ["a"], True], ids=repr)
def test_something_that_is_no_string_is_refused(address: object) -> None:
    with pytest.raises(InvalidEmailAddressError):
        email_partition(address)  # type: ignore[arg-type]


@pytest.mark.parametrize(("data", "digest"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_the_hash_agrees_with_the_values_its_authors_published(data: bytes, digest: int) -> None:
    assert fnv1a32(data) == digest


@settings(deadline=None)
@given(ascii_text.filter(lambda text: text.strip(WHITESPACE)))
def test_case_and_outer_whitespace_never_change_the_partition(address: str) -> None:
    expected = email_partition(address)
    assert email_partition(address.upper()) == email_partition(address.lower()) == expected
    assert email_partition(f"\r\n {address}\t\v\f") == expected


@settings(deadline=None)
@given(ascii_text.filter(lambda text: text.strip(WHITESPACE)))
def test_the_canonical_address_is_a_fixed_point(address: str) -> None:
    partition = email_partition(address)
    assert email_partition(partition.canonical_email) == partition
    assert partition.canonical_email == partition.canonical_email.strip(WHITESPACE)
    assert not re.search("[A-Z]", partition.canonical_email)


@settings(deadline=None)
@given(ascii_text.filter(lambda text: text.strip(WHITESPACE)))
def test_every_partition_name_is_one_of_the_thousand(address: str) -> None:
    partition = email_partition(address)
    assert re.fullmatch(r"partition-\d{3}", partition.instance)
    assert partition.fnv1a32 % 1000 == int(partition.instance.removeprefix("partition-"))
    assert 0 <= partition.fnv1a32 < 2**32


@settings(deadline=None)
@given(st.text(min_size=1).filter(lambda text: not text.isascii()))
def test_any_character_outside_ascii_is_refused_even_at_the_ends(address: str) -> None:
    with pytest.raises(InvalidEmailAddressError):
        email_partition(address)


@settings(deadline=None)
@given(st.text(st.sampled_from(WHITESPACE)))
def test_nothing_but_whitespace_is_refused(address: str) -> None:
    with pytest.raises(InvalidEmailAddressError):
        email_partition(address)
