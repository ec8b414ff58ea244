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
from tests.directory.conftest import held_partition, new_api_client

PROFILE_URL = "/patterns/hash-partitioned-attribute-map/customer-profile"
CONFLICT = 409

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("directory")]


def profile_of(address: str) -> dict[str, str]:
    return {"emailAddress": address, "fullName": "A", "companyName": "B", "customerTier": "C"}


def put(address: str) -> int:
    """Save a profile over HTTP; the status of the answer."""
    try:
        return int(new_api_client().put(PROFILE_URL, profile_of(address), format="json").status_code)
    finally:
        connection.close()


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
    answers: list[int] = []

    def put_once(address: str) -> int:
        answers.append(status := put(address))
        return status

    def put_until_saved(address: str) -> int:
        retrying = Retrying(
            retry=retry_if_result(lambda status: status == CONFLICT),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            stop=stop_after_attempt(200),
        )
        return int(retrying(put_once, address))

    statuses = in_parallel(put_until_saved, addresses, threads=16)
    assert statuses == [200] * 64
    assert set(answers) <= {200, CONFLICT}
    stored = CustomerProfile.objects.filter(partition=email_partition(addresses[0]).instance)
    assert {profile.email for profile in stored} == set(addresses)


def test_different_partitions_never_conflict() -> None:
    one_of_each: dict[str, str] = {}
    for n in range(400):
        one_of_each.setdefault(email_partition(address := f"user{n}@example.com").instance, address)
    assert set(in_parallel(put, one_of_each.values(), threads=16)) == {200}


def test_a_held_partition_is_refused_at_once_and_its_neighbours_go_on() -> None:
    with held_partition("alice@example.com"):
        began = time.monotonic()
        response = new_api_client().put(PROFILE_URL, profile_of("alice@example.com"), format="json")
        assert time.monotonic() - began < 1
        assert (response.status_code, response.json()["code"]) == (CONFLICT, "rpc_lock_conflict")
        assert response.json()["locks"] == ["customer_profiles_by_email_partition/partition-278"]
        assert int(response["Retry-After"]) >= 1
        assert put("bob@example.com") == 200
        found = new_api_client().get(PROFILE_URL, {"emailAddress": "alice@example.com"})
        assert found.json()["code"] == "customer_profile_not_found", "reading takes no lock"
    assert put("alice@example.com") == 200
