"""What an operator sees: every page without an error in the console and without anything the policy forbids."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from docs.pictures.order import FLOW_ID
from tests.browser.conftest import ADA, SCRIPT


def find(page: Page, text: str) -> None:
    """Search in a list."""
    page.locator("#searchbar").fill(text)
    page.get_by_role("button", name="Search").click()


def open_list(page: Page, name: str) -> None:
    """Go to a list from the admin's front page."""
    page.locator("#content-main").get_by_role("link", name=name, exact=True).click()


def open_order(page: Page) -> None:
    """Go to the order's page by way of a search."""
    open_list(page, "Runs")
    find(page, FLOW_ID[:-1])
    page.get_by_role("link", name=FLOW_ID).click()


def part(page: Page, title: str) -> Locator:
    """A part of a run's page."""
    return page.locator(".module", has=page.get_by_role("heading", name=title))


def test_an_operator_finds_a_run_and_reads_why_it_is_not_moving(page: Page) -> None:
    open_order(page)
    why = page.locator(".dexflows-why")
    expect(why).to_contain_text("running: attempt 1 of execute by worker celery@shop-2")
    expect(why).to_contain_text(
        re.compile(r"waits for lock payment, held by ChargeCard-1 since .*; place 1 in the queue")
    )
    expect(why).to_contain_text("backs off: attempt 1 failed with ConnectionError: the courier's API answered 503")
    for title, row in {
        "Step executions": "ReserveStock-1 COMPLETED",
        "Locks held": "payment ChargeCard-1",
        "Waiting for locks": "ApplyVoucher-1 payment",
        "History": "STEP_ATTEMPT_FAILED",
    }.items():
        expect(part(page, title).get_by_role("row", name=row)).to_be_visible()
    why.get_by_role("link", name="BookCourier-1").click()
    expect(page.locator("#content")).to_contain_text("ConnectionError")


def test_a_value_with_markup_is_shown_as_text(page: Page) -> None:
    open_order(page)
    attributes = part(page, "Attributes")
    expect(attributes).to_contain_text(SCRIPT)
    attributes.get_by_role("link", name="status").click()
    expect(page.locator("pre.dexflows-value")).to_contain_text(SCRIPT)
    expect(page).not_to_have_title("taken over")


def test_a_search_by_flow_id_finds_nothing_else(page: Page) -> None:
    open_list(page, "Runs")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    find(page, FLOW_ID)
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    find(page, "no-such-flow")
    expect(page.locator("#result_list tbody tr")).to_have_count(0)


def test_the_directory_shows_its_partitions_and_finds_a_profile_by_its_address(page: Page) -> None:
    open_list(page, "Partitions")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    page.get_by_role("link", name="browse").click()
    expect(page.locator("#result_list")).to_contain_text(ADA.full_name)
    find(page, " ADA@Example.com ")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    find(page, "nobody@example.com")
    expect(page.locator("#result_list tbody tr")).to_have_count(0)


def test_the_documentation_of_the_api_obeys_the_policy(page: Page) -> None:
    page.goto("/api/docs/")
    expect(page.get_by_text("/patterns/hash-partitioned-attribute-map/customer-profile").first).to_be_visible()
