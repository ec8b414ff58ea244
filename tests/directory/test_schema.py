"""The partition schema is durable: code with another one is refused before it can lose sight of profiles."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from celery.signals import worker_init
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import IntegrityError
from rest_framework.test import APIClient

from dexflows.client import Client
from directory import client, schema
from directory.flows import FLOW_ID
from directory.models import DirectorySchema

pytestmark = pytest.mark.django_db


def test_the_first_start_records_the_schema(directory: str) -> None:
    recorded = DirectorySchema.objects.get()
    assert recorded.partition_count == 1000
    assert "fnv1a32" in recorded.algorithm


def test_the_command_starts_once_and_prints_the_run_id() -> None:
    first, second = StringIO(), StringIO()
    call_command("start_customer_directory", stdout=first)
    call_command("start_customer_directory", stdout=second)
    assert first.getvalue() == second.getvalue()
    assert Client().describe_flow(FLOW_ID).run_id == first.getvalue().strip()


def test_the_check_is_silent_before_the_start_and_while_nothing_changed() -> None:
    call_command("check", databases=["default"])
    client.start_directory()
    call_command("check", databases=["default"])


@pytest.mark.usefixtures("directory")
class TestAnotherPartitionCount:
    """Every way in refuses."""

    @pytest.fixture(autouse=True)
    def changed(self, directory: str, settings: Any) -> None:
        settings.DIRECTORY = {"PARTITION_COUNT": 500}

    def test_the_system_check_says_what_to_do(self) -> None:
        with pytest.raises(SystemCheckError, match=r"1000 partitions.*uses 500.*Set DIRECTORY"):
            call_command("check", databases=["default"])

    def test_the_start_command_refuses(self) -> None:
        with pytest.raises(CommandError, match="1000 partitions"):
            call_command("start_customer_directory")

    @pytest.mark.django_db(transaction=True)
    def test_a_worker_does_not_start(self) -> None:
        # As Celery sends it, which swallows whatever is an Exception.
        with pytest.raises(SystemExit, match="1000 partitions"):
            worker_init.send(sender=None)

    def test_requests_are_refused_instead_of_answered_with_not_found(self, api: APIClient) -> None:
        response = api.get("/patterns/hash-partitioned-attribute-map/customer-profile", {"emailAddress": "a@b.c"})
        assert response.status_code == 500
        assert response.json()["code"] == "internal_error"


@pytest.mark.parametrize("count", [0, -1, "1000", True, None, 2.0], ids=repr)
def test_a_partition_count_that_is_none_is_refused(count: Any, settings: Any) -> None:
    settings.DIRECTORY = {"PARTITION_COUNT": count}
    with pytest.raises(ImproperlyConfigured, match="positive integer"):
        client.start_directory()


def test_there_can_be_one_recorded_schema_only() -> None:
    with pytest.raises(IntegrityError):
        DirectorySchema.objects.create(id=2, partition_count=5, algorithm="other")


def test_after_the_first_comparison_a_request_asks_for_the_schema_no_more(
    directory: str, django_assert_num_queries: Any
) -> None:
    schema.ensure_unchanged()
    with django_assert_num_queries(0):
        schema.ensure_unchanged()
