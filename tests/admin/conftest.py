"""A signed-in browser, and the queries that its pages make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as WebClient
from django.test.utils import CaptureQueriesContext


@pytest.fixture(autouse=True)
def _plain_http(settings: Any) -> None:
    """Pages are looked at over plain HTTP, whatever profile the tests run with."""
    settings.SECURE_SSL_REDIRECT = False


@pytest.fixture
def web(db: None, client: WebClient) -> WebClient:
    """A signed-in superuser's browser."""
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def queries_of(web: WebClient) -> Callable[[str], list[str]]:
    """Gives the statements that a page makes."""

    def look(address: str) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            page: Any = web.get(address)
        assert page.status_code == 200, address
        return [query["sql"] for query in captured.captured_queries]

    return look
