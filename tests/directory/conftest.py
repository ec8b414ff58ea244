"""Fixtures of the directory's tests: a started directory, and an API client that is let in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from pytest_django import Settings
from rest_framework.test import APIClient

from dexflows import RPCInvokeOptions
from dexflows.client import Client
from directory import client, schema
from directory.flows import FLOW_ID, customer_directory_flow
from directory.partitioning import email_partition


@pytest.fixture(autouse=True)
def plain_http(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = False


@pytest.fixture(autouse=True)
def nothing_verified() -> Iterator[None]:
    """Each test has a database of its own, so what a process knows about it must not outlive the test."""
    schema.forget()
    yield
    schema.forget()


@pytest.fixture
def directory() -> str:
    """A started directory; the value is its run ID."""
    return client.start_directory()


@pytest.fixture
def api() -> APIClient:
    return new_api_client()


def new_api_client() -> APIClient:
    """A client of its own, for each thread one: it answers a fault of ours with 500 instead of raising it."""
    api = APIClient(raise_request_exception=False)
    api.force_authenticate(User(username="tester"))
    return api


@contextmanager
def held_partition(address: str) -> Iterator[None]:
    """The partition of ``address`` is locked inside, by an RPC under way on another connection."""
    held, finished = Event(), Event()
    holder = Thread(target=_hold, args=(address, held, finished))
    holder.start()
    try:
        assert held.wait(10), "the holder did not get the lock"
        yield
    finally:
        finished.set()
        holder.join(10)


def _hold(address: str, held: Event, finished: Event) -> None:
    profiles, instance = customer_directory_flow.profiles, email_partition(address).instance
    options = RPCInvokeOptions(
        lock_attribute_map_instances=(profiles.lock(instance),),
        load_attribute_map_instances=(profiles.load(instance),),
    )
    try:
        with transaction.atomic():
            Client().invoke_rpc(
                customer_directory_flow.get_customer_profile_by_email, FLOW_ID, address, options=options
            )
            held.set()
            finished.wait(20)
    finally:
        connection.close()
