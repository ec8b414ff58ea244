"""A run's page: why it is not moving, and everything that belongs to it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client as WebClient

from dexflows.models import SubFlowLink
from dexflows.states import RunStatus, StepState
from tests.admin.addresses import page_of
from tests.admin.rows import make_busy_run, make_run, make_step

pytestmark = pytest.mark.django_db


def test_it_shows_steps_attributes_messages_locks_waiters_and_history(web: WebClient) -> None:
    page: Any = web.get(page_of(make_busy_run()))
    sections = {section.title: section for section in page.context["sections"]}
    assert [len(section.rows) for section in sections.values()] == [4, 1, 1, 1, 1, 2]
    text = page.content.decode()
    for shown in ("Reserve-1", "balance/account-1", "orders/shop%201", "STEP_ATTEMPT_FAILED", "20 s", "10 s"):
        assert shown in text
    assert "the &lt;i&gt;shop&lt;/i&gt; is busy" in text
    assert "&lt;b&gt;Ada&lt;/b&gt;" in text


def test_it_says_why_the_run_is_not_moving(web: WebClient) -> None:
    text = web.get(page_of(make_busy_run())).content.decode()
    assert "Why is it not moving?" in text
    assert "waits for lock balance/account-1, held by Charge-1 since" in text


def test_a_closed_run_is_not_asked_why(web: WebClient) -> None:
    run = make_run(status=RunStatus.COMPLETED)
    assert b"Why is it not moving?" not in web.get(page_of(run)).content


def test_a_section_is_bounded_and_says_so(web: WebClient) -> None:
    run = make_run()
    for number in range(1, 103):
        make_step(run, "Loop", StepState.COMPLETED, number)
    page: Any = web.get(page_of(run))
    steps = page.context["sections"][0]
    assert len(steps.rows) == 100
    assert b"100 of more." in page.content
    assert f"?run_id={run.run_id}" in steps.more


def test_a_user_sees_only_the_sections_of_models_that_they_may_view(db: None, client: WebClient) -> None:
    user = User.objects.create(username="staff", is_staff=True)
    for codename in ("view_run", "view_eventrecord"):
        user.user_permissions.add(Permission.objects.get(content_type__app_label="dexflows", codename=codename))
    client.force_login(user)
    page: Any = client.get(page_of(make_busy_run()))
    assert [section.title for section in page.context["sections"]] == ["History, newest first"]
    assert "Why is it not moving?" not in page.content.decode()


def test_a_parent_and_its_sub_flows_lead_to_each_other(web: WebClient) -> None:
    parent = make_run("parent")
    child = make_run("SubFlow:parent-Step-1-0", parent_run_id=parent.run_id)
    SubFlowLink.objects.create(run_id=parent.run_id, step_type="Step", number=1, condition=0, child_run_id=child.run_id)
    page: Any = web.get(page_of(parent))
    assert page.context["sections"][0].title == "SubFlows"
    assert page_of(child) in page.content.decode()
    assert page_of(parent) in web.get(page_of(child)).content.decode()


def test_a_failed_run_leads_to_the_one_that_it_was_retried_by(web: WebClient) -> None:
    again = make_run(run_number=2)
    failed = make_run(status=RunStatus.FAILED, retried_by=again.run_id)
    assert page_of(again) in web.get(page_of(failed)).content.decode()
