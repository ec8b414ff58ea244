"""Fixtures of the directory's tests: a started directory, and an API client that is let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from directory import client, schema


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
