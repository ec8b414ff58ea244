"""The directory through a real HTTP server and a real socket, with a token as an outside caller has one."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.authtoken.models import Token

PROFILE = {"emailAddress": "zoë+1@example.com", "fullName": "Zoë", "companyName": "Ö & Co", "customerTier": "gold"}

pytestmark = pytest.mark.django_db(transaction=True)


class Caller:
    """Speaks HTTP as curl does."""

    def __init__(self, base: str, token: str) -> None:
        self._base = f"{base}/patterns/hash-partitioned-attribute-map"
        self._headers = {
            "Authorization": f"Token {token}",
            "Content-Type": "application/json",
            "X-Forwarded-Proto": "https",
        }

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._base}/{path}", content, self._headers, method=method)
        try:
            with urlopen(request, timeout=30) as response:
                return response.status, json.load(response)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture
def call(live_server: Any, settings: Settings) -> Caller:
    # As behind a proxy that speaks HTTPS with the caller.
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    token = Token.objects.create(user=User.objects.create(username="caller"))
    return Caller(live_server.url, token.key)


def test_a_caller_starts_the_directory_saves_and_reads(call: Caller) -> None:
    profile = PROFILE | {"emailAddress": "Zoe+1@Example.com"}
    query = urlencode({"emailAddress": profile["emailAddress"]})
    assert call("PUT", "customer-profile", profile)[1]["code"] == "flow_not_active_or_not_found"
    status, started = call("POST", "start")
    assert (status, started["flowID"]) == (200, "customer-directory")
    assert call("GET", f"customer-profile?{query}")[1]["code"] == "customer_profile_not_found"
    saved = profile | {"emailAddress": "zoe+1@example.com"}
    assert call("PUT", "customer-profile", profile) == (200, saved)
    assert call("GET", f"customer-profile?{query}") == (200, saved)
    assert call("PUT", "customer-profile", PROFILE)[1]["errors"] == {
        "emailAddress": ["The e-mail address must contain ASCII characters only."]
    }
