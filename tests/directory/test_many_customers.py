"""Thousands of customers, imported by the command as an operator runs it, and looked at in every bucket."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from django.db import connection

from directory import client
from directory.flows import PROFILES_ATTRIBUTE
from directory.partitioning import PARTITION_COUNT, email_partition
from directory.profile import PROFILE_FIELDS
from tests.workers import PROJECT

VECTORS = json.loads((Path(__file__).parent / "vectors" / "email_partitions.json").read_text(encoding="utf-8"))
SAMPLE = 300
SECONDS = 3600

STORED = """
SELECT bucket.instance, profile.key, profile.value::text
  FROM dexflows_attribute AS bucket CROSS JOIN LATERAL jsonb_each(bucket.value) AS profile
 WHERE bucket.run_id = %s AND bucket.name = %s
"""
BUCKETS = """
SELECT count(*), sum((SELECT count(*) FROM jsonb_object_keys(value)))
  FROM dexflows_attribute WHERE run_id = %s AND name = %s
"""

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Place:
    """Where a customer must be found, and how."""

    partition: str
    profile: dict[str, str]


def made_up_customers(size: int) -> dict[str, Place]:
    """Customers by canonical address: those of the published vectors first, then made-up ones."""
    published = {
        vector["canonical"]: vector["partition"] for vector in VECTORS["accepted"] if "\0" not in vector["input"]
    }
    addresses = [*published, *(f"customer{n}.{n * 7919 % 1000}@shop{n % 97}.example" for n in range(size))]
    tiers = ("bronze", "silver", "gold")
    return {
        address: Place(
            published.get(address) or email_partition(address).instance,
            dict(
                zip(
                    PROFILE_FIELDS,
                    (address, f"Zoë “{n}” Ünal", f"Company, {n % 500} & Sons", tiers[n % 3]),
                    strict=True,
                )
            ),
        )
        for n, address in enumerate(addresses[:size])
    }


def write_file(path: Path, customers: dict[str, Place]) -> None:
    """Write the rows in random order; every tenth address in a spelling of its own."""
    rows = [list(place.profile.values()) for place in customers.values()]
    Random(1).shuffle(rows)
    for row in rows[::10]:
        row[0] = f" {row[0].upper()}\t"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([PROFILE_FIELDS, *rows])


def start_command(path: Path, stderr: int) -> subprocess.Popen[str]:
    """Import with `manage.py` in a process of its own, on the database of this test."""
    return subprocess.Popen(
        [sys.executable, "manage.py", "import_customer_profiles", str(path), "--writers", "8"],
        cwd=PROJECT,
        env={**os.environ, "TERM": "xterm", "DATABASE_NAME": connection.settings_dict["NAME"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def read_terminal(terminal: int) -> str:
    """What is written to a terminal until its last writer has gone."""
    pieces = []
    with suppress(OSError):
        while piece := os.read(terminal, 4096):
            pieces.append(piece)
    return b"".join(pieces).decode()


@pytest.mark.parametrize("size", [1_000, pytest.param(100_000, marks=pytest.mark.faults)])
def test_every_imported_customer_is_in_the_partition_of_its_address(directory: str, tmp_path: Path, size: int) -> None:
    customers = made_up_customers(size)
    assert len(customers) == size
    write_file(tmp_path / "customers.csv", customers)
    out, err = start_command(tmp_path / "customers.csv", subprocess.PIPE).communicate(timeout=SECONDS)
    assert (out, err) == (f"{size} rows saved, 0 skipped.\n", "")
    with connection.cursor() as cursor:
        cursor.execute(BUCKETS, (directory, PROFILES_ATTRIBUTE))
        buckets, profiles = cursor.fetchone()
        cursor.execute(STORED, (directory, PROFILES_ATTRIBUTE))
        stored = {address: Place(instance, json.loads(text)) for instance, address, text in cursor}
    assert buckets <= PARTITION_COUNT
    assert profiles == size
    assert stored == customers
    for address in Random(2).sample(list(customers), SAMPLE):
        found = client.find_profile(address.upper())
        assert found is not None
        assert found.full_name == customers[address].profile["fullName"]


def test_a_terminal_shows_how_far_the_import_is(directory: str, tmp_path: Path) -> None:
    write_file(tmp_path / "customers.csv", made_up_customers(50))
    terminal, end_of_command = pty.openpty()
    command = start_command(tmp_path / "customers.csv", end_of_command)
    os.close(end_of_command)
    shown = read_terminal(terminal)
    os.close(terminal)
    assert command.communicate(timeout=SECONDS) == ("50 rows saved, 0 skipped.\n", None)
    assert "Saving profiles" in shown
    assert "50/50" in shown
