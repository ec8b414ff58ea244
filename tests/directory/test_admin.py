"""The directory in the admin: read-only, searchable through the partition, and with a bounded number of queries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as WebClient
from django.urls import reverse

from dexflows.client import Client
from directory import client
from directory.admin import CustomerProfileAdmin
from directory.flows import FLOW_ID
from directory.models import CustomerProfile, DirectorySchema, Partition
from directory.partitioning import email_partition
from directory.profile import CustomerProfile as Profile

pytestmark = pytest.mark.django_db

PROFILES = "admin:directory_customerprofile_changelist"
PARTITIONS = "admin:directory_partition_changelist"


def save(*addresses: str) -> None:
    for address in addresses:
        client.upsert_profile(
            Profile(email_address=address, full_name=f"<b>{address}</b>", company_name="C & Co", customer_tier="gold")
        )


@pytest.fixture
def web(directory: str, client: WebClient) -> WebClient:
    """A signed-in superuser's browser."""
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def emails_on(page: Any) -> list[str]:
    return [profile.email for profile in page.context["cl"].result_list]


def test_partitions_are_listed_with_their_counts(web: WebClient) -> None:
    save("user7@example.com", "user14@example.com", "alice@example.com")
    page = web.get(reverse(PARTITIONS))
    rows = {row.instance: row.profiles for row in page.context["cl"].result_list}
    assert rows == {"partition-278": 1, "partition-646": 2}
    assert b"?partition=partition-646" in page.content


@pytest.mark.parametrize("term", ["partition-646", "user7@example.com", " USER14@example.com "])
def test_a_partition_is_found_by_its_name_or_an_address(web: WebClient, term: str) -> None:
    save("user7@example.com", "alice@example.com")
    page = web.get(reverse(PARTITIONS), {"q": term})
    assert [row.instance for row in page.context["cl"].result_list] == ["partition-646"]


def test_profiles_can_be_narrowed_to_a_partition(web: WebClient) -> None:
    save("user7@example.com", "user14@example.com", "alice@example.com")
    page = web.get(reverse(PROFILES), {"partition": "partition-646"})
    assert emails_on(page) == ["user14@example.com", "user7@example.com"]


def test_profiles_are_paged_to_the_end_without_gap_or_repetition(
    web: WebClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CustomerProfileAdmin, "list_per_page", 4)
    addresses = {f"user{n}@example.com" for n in range(21)}
    save(*addresses)
    seen: list[str] = []
    query: str | None = ""
    while query is not None:
        page = web.get(reverse(PROFILES) + query)
        assert page.status_code == 200
        seen += emails_on(page)
        query = page.context["cl"].next_page_query
    assert len(seen) == 21
    assert set(seen) == addresses
    assert b"First page" in page.content


@pytest.mark.parametrize("after", ["", "x", "/", "partition-278", "partition-278/", "\x00", "partition-999/z/z"])
def test_a_made_up_page_address_is_answered(web: WebClient, after: str) -> None:
    save("alice@example.com")
    assert web.get(reverse(PROFILES), {"after": after}).status_code in (200, 302)


@pytest.mark.parametrize("term", ["alice@example.com", "  ALICE@example.com "])
def test_a_profile_is_found_by_its_address(web: WebClient, term: str) -> None:
    save("alice@example.com", "user7@example.com")
    assert emails_on(web.get(reverse(PROFILES), {"q": term})) == ["alice@example.com"]


@pytest.mark.parametrize("term", ["alice", "ü@example.com", "nobody@example.com", "%", "' OR 1=1 --", "a\x00b"])
def test_a_search_that_matches_nothing_finds_nothing(web: WebClient, term: str) -> None:
    save("alice@example.com")
    assert emails_on(web.get(reverse(PROFILES), {"q": term})) == []


@pytest.mark.parametrize("query", ["?o=1", "?o=-4.2"])
def test_an_address_cannot_ask_for_another_order(web: WebClient, query: str) -> None:
    save("user7@example.com", "alice@example.com")
    assert emails_on(web.get(reverse(PROFILES) + query)) == ["alice@example.com", "user7@example.com"]


@pytest.mark.parametrize("name", [PROFILES, PARTITIONS])
@pytest.mark.parametrize("query", ["?full_name__contains=a", "?profiles__gt=0"])
def test_an_address_cannot_filter_by_what_is_inside_the_buckets(web: WebClient, name: str, query: str) -> None:
    assert web.get(reverse(name) + query).status_code in (302, 400)


def test_a_search_reads_one_bucket_only(web: WebClient) -> None:
    place = email_partition("alice@example.com")
    plan = CustomerProfile.objects.filter(partition=place.instance, email=place.canonical_email).explain()
    assert place.instance in plan


def test_a_profile_has_a_page_on_which_nothing_can_be_changed(web: WebClient) -> None:
    save("alice@example.com")
    address = reverse("admin:directory_customerprofile_change", args=["alice@example.com"])
    page = web.get(address)
    assert page.status_code == 200
    assert b"&lt;b&gt;alice@example.com&lt;/b&gt;" in page.content
    assert b'name="_save"' not in page.content
    assert web.post(address, {"full_name": "Mallory"}).status_code == 403
    assert CustomerProfile.objects.get(email="alice@example.com").full_name == "<b>alice@example.com</b>"


@pytest.mark.parametrize(
    ("model", "key"),
    [("customerprofile", "alice@example.com"), ("partition", "partition-278"), ("directoryschema", "1")],
)
def test_nothing_can_be_added_or_deleted(web: WebClient, model: str, key: str) -> None:
    save("alice@example.com")
    assert web.get(reverse(f"admin:directory_{model}_change", args=[key])).status_code == 200
    assert web.get(reverse(f"admin:directory_{model}_changelist")).status_code == 200
    assert web.get(reverse(f"admin:directory_{model}_history", args=[key])).status_code == 200
    assert web.get(reverse(f"admin:directory_{model}_add")).status_code == 403
    assert web.post(reverse(f"admin:directory_{model}_delete", args=[key]), {"post": "yes"}).status_code == 403


def test_a_profile_that_is_not_there_is_not_found(web: WebClient) -> None:
    for key in ("nobody@example.com", "ü", "a\x00b"):
        address = reverse("admin:directory_customerprofile_change", args=[key])
        assert web.get(address).status_code == 302


@pytest.mark.parametrize("name", [PROFILES, PARTITIONS])
def test_the_number_of_queries_does_not_grow_with_the_list(
    web: WebClient, name: str, django_assert_num_queries: Any
) -> None:
    def queries() -> list[str]:
        with connection.execute_wrapper(record):
            seen.clear()
            assert web.get(reverse(name)).status_code == 200
        return list(seen)

    seen: list[str] = []

    def record(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    save("alice@example.com")
    few = queries()
    save(*(f"user{n}@example.com" for n in range(40)))
    many = queries()
    assert len(many) == len(few)
    assert not [sql for sql in many if re.search(r"COUNT\(", sql) and "customer_profile_view" in sql]


def test_a_user_without_the_right_sees_nothing(directory: str, client: WebClient) -> None:
    client.force_login(User.objects.create(username="staff", is_staff=True))
    assert client.get(reverse(PROFILES)).status_code == 403


def test_the_views_show_the_latest_run_only(directory: str) -> None:
    save("alice@example.com")
    assert [str(each) for each in Partition.objects.all()] == ["partition-278"]
    assert [str(each) for each in CustomerProfile.objects.all()] == ["alice@example.com"]
    assert str(DirectorySchema.objects.get()).startswith("1000 partitions")
    Client().stop_flow(FLOW_ID)
    assert CustomerProfile.objects.exists(), "a stopped run is still the latest"
    client.start_directory()
    assert not Partition.objects.exists()
    assert not CustomerProfile.objects.exists()
