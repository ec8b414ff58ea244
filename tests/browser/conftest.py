"""A signed-in tab of a real browser, at a real server with an order under way and a customer directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from playwright.sync_api import Browser, Page, expect

from config import environ
from dexflows import Client
from directory import client as directory_client
from directory import schema
from directory.profile import CustomerProfile
from docs.pictures import order
from tests.browser.chromium import PATIENCE_MS, find_chromium, open_browser
from tests.web import WebServer

NAME, PASSWORD = "operator", "a long password of an operator"
SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=alert(1)>"
ADA = CustomerProfile(
    email_address="ada@example.com", full_name="Ada <b>Lovelace</b>", company_name="Engines", customer_tier="gold"
)
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", event =>
    console.error(`forbidden: ${event.violatedDirective} ${event.blockedURI}`))
"""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of the machine's Chromium."""
    if found := find_chromium():
        return found
    reason = "There is no Chromium on PATH. On Debian and Ubuntu: apt-get install chromium"
    if environ.flag("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def transactional_db(django_db_setup: None, django_db_blocker: Any, chromium: str) -> Iterator[str]:
    """Give real commits of an order under way, an operator and a customer; the value is the order's run ID.

    Once for a module: while a browser is open its thread cannot query, so no test can make rows of its own.
    """
    with django_db_blocker.unblock(), cleaned_up():
        User.objects.create_superuser(NAME, password=PASSWORD)
        schema.forget()
        directory_client.start_directory()
        directory_client.upsert_profile(ADA)
        with order.order_under_way() as run_id:
            Client().set_attribute(order.FLOW_ID, order.status, SCRIPT)
            yield run_id


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Within the block rows may be made; none is left after it."""
    try:
        yield
    finally:
        call_command("flush", verbosity=0, interactive=False)
        schema.forget()
        connections.close_all()


@pytest.fixture(scope="module")
def server(transactional_db: str) -> Iterator[WebServer]:
    """Give a web server on those rows."""
    server = WebServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def browser(server: WebServer, chromium: str) -> Iterator[Browser]:
    """Give a browser."""
    expect.set_options(timeout=PATIENCE_MS)
    with open_browser(chromium) as browser:
        yield browser


@dataclass
class Complaints:
    """What the browser was not content with."""

    found: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        """Note what goes wrong in a tab: errors in its console, in its scripts, in its requests."""
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", lambda message: self._note(message.type in {"error", "warning"}, message.text))
        page.on("pageerror", lambda error: self._note(True, str(error)))
        page.on("requestfailed", lambda request: self._note(True, f"{request.url}: {request.failure}"))
        page.on("response", lambda response: self._note(response.status >= 400, f"{response.url}: {response.status}"))
        page.on("dialog", lambda dialog: self._note(True, f"dialog: {dialog.message}"))

    def _note(self, matters: bool, text: str) -> None:
        if matters:
            self.found.append(text)


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """Give a tab that logged in through the login page; afterwards the browser must have had nothing to complain of."""
    context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page, complaints = context.new_page(), Complaints()
    complaints.listen(page)
    page.goto("/")
    page.get_by_label("Username").fill(NAME)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Site administration")).to_be_visible()
    yield page
    context.close()
    assert complaints.found == []
