"""Many writers at once: none is lost, conflicts are refused at once, and partitions never meet."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from django.db import connection
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from directory.models import CustomerProfile
from directory.partitioning import email_partition
from tests.directory.conftest import new_api_client

PROFILE_URL = "/patterns/hash-partitioned-attribute-map/customer-profile"
CONFLICT = 409

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("directory")]


def put(address: str) -> tuple[int, float]:
    """Save a profile over HTTP; the status and the seconds it took."""
    body = {"emailAddress": address, "fullName": "A", "companyName": "B", "customerTier": "C"}
    began = time.monotonic()
    try:
        response = new_api_client().put(PROFILE_URL, body, format="json")
    finally:
        connection.close()
    return response.status_code, time.monotonic() - began


def in_parallel(call: Callable[[str], Any], addresses: Iterable[str], threads: int) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, addresses))


def addresses_of_one_partition(size: int) -> list[str]:
    buckets: dict[str, list[str]] = defaultdict(list)
    for n in count():
        bucket = buckets[email_partition(address := f"user{n}@example.com").instance]
        bucket.append(address)
        if len(bucket) == size:
            return bucket
    raise AssertionError("count() has no end")


def test_64_customers_of_one_partition_saved_at_once_are_all_there() -> None:
    addresses = addresses_of_one_partition(64)
    answers: list[tuple[int, float]] = []

    def put_status(address: str) -> int:
        status, seconds = put(address)
        answers.append((status, seconds))
        return status

    def put_until_saved(address: str) -> int:
        retrying = Retrying(
            retry=retry_if_result(lambda status: status == CONFLICT),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            stop=stop_after_attempt(200),
        )
        return int(retrying(put_status, address))

    statuses = in_parallel(put_until_saved, addresses, threads=16)
    assert statuses == [200] * 64
    assert {status for status, _ in answers} <= {200, CONFLICT}
    stored = CustomerProfile.objects.filter(partition=email_partition(addresses[0]).instance)
    assert {profile.email for profile in stored} == set(addresses)


def test_different_partitions_never_conflict() -> None:
    one_of_each: dict[str, str] = {}
    for n in range(400):
        one_of_each.setdefault(email_partition(address := f"user{n}@example.com").instance, address)
    answers = in_parallel(put, one_of_each.values(), threads=16)
    assert {status for status, _ in answers} == {200}
