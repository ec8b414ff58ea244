"""Values in pages: formatted, exact, escaped, and never read whole when they are large."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client as WebClient

from dexflows.models import AttributeRecord, StepRecord
from dexflows.states import StepState
from tests.admin.addresses import first_of, list_of, page_of
from tests.admin.rows import make_busy_run, make_run, make_step, write

pytestmark = pytest.mark.django_db


def test_a_value_is_shown_as_formatted_json_and_escaped(web: WebClient) -> None:
    write(make_run(), "profile", {"name": "<script>alert(1)</script>", "tags": ["a", "b"]})
    page = web.get(page_of(first_of(AttributeRecord))).content.decode()
    assert "    &quot;tags&quot;: [\n" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page + web.get(list_of(AttributeRecord)).content.decode()


def test_numbers_are_shown_exactly(web: WebClient) -> None:
    row = write(make_run(), "total", 0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dexflows_attribute SET value = '12345678901234567890.12345678901234567890'")
    for address in (page_of(first_of(AttributeRecord)), list_of(AttributeRecord)):
        assert b"12345678901234567890.12345678901234567890" in web.get(address).content
    assert row.name == "total"


def test_a_large_value_is_shown_in_part_with_its_size(web: WebClient) -> None:
    with connection.cursor() as cursor:
        write(make_run(), "big", "")
        cursor.execute(
            "UPDATE dexflows_attribute SET value = (SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 30000) AS n)"
        )
    page = web.get(page_of(first_of(AttributeRecord))).content
    assert b"The first 20000 characters of a value of 1.0\xc2\xa0MB" in page
    assert len(page) < 60_000
    page = web.get(list_of(AttributeRecord)).content
    assert b"stored" in page
    assert len(page) < 30_000


def test_a_steps_page_shows_input_failure_and_locals(web: WebClient) -> None:
    columns = {"input": {"in": 1}, "failure": {"error_type": "E<1>"}, "locals": {"seen": True}}
    make_step(make_run(), "Ship", StepState.BACKOFF, **columns)
    page = web.get(page_of(first_of(StepRecord))).content.decode()
    for text in ("&quot;in&quot;: 1", "E&lt;1&gt;", "&quot;seen&quot;: true"):
        assert text in page


def test_no_page_has_a_script_or_style_that_the_policy_forbids(web: WebClient) -> None:
    run = make_busy_run()
    for address in (page_of(run), list_of(AttributeRecord), page_of(first_of(AttributeRecord))):
        page: Any = web.get(address)
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        text = page.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>", text)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text)
