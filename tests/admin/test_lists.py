"""The lists: complete, in one direction, narrowed by indexes only, and read-only."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client as WebClient

from dexflows.admin.read_only import ReadOnlyAdmin
from dexflows.models import AttributeRecord, EventRecord, LockHolder, LockWaiter, Run, StepRecord
from dexflows.states import RunStatus, StepState
from tests.admin.addresses import MODELS, first_of, list_of, page_of
from tests.admin.rows import make_busy_run, make_run, make_step, write

pytestmark = pytest.mark.django_db


def rows_on(web: WebClient, address: str) -> list[Any]:
    page: Any = web.get(address)
    assert page.status_code == 200, address
    return list(page.context["cl"].result_list)


@pytest.mark.parametrize("model", MODELS)
def test_a_list_is_paged_to_the_end_without_gap_or_repetition(
    web: WebClient, monkeypatch: pytest.MonkeyPatch, model: type[Model]
) -> None:
    for number in range(4):
        make_busy_run(f"order-{number}", size=3)
    for number in range(8):
        make_run(f"closed-{number}", status=RunStatus.COMPLETED)
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 5)
    expected = set(model._default_manager.values_list("pk", flat=True))
    seen, address = [], list_of(model)
    while address:
        page: Any = web.get(address)
        assert page.status_code == 200
        seen += [row.pk for row in page.context["cl"].result_list]
        following = page.context["cl"].next_page_query
        address = list_of(model) + following if following else ""
    assert len(seen) == len(expected) > 10
    assert set(seen) == expected
    assert b"First page" in page.content


def test_runs_are_listed_newest_first(web: WebClient) -> None:
    for number in range(3):
        make_run(f"order-{number}", started=100 - number)
    assert [run.flow_id for run in rows_on(web, list_of(Run))] == ["order-2", "order-1", "order-0"]


def test_runs_are_found_by_flow_id_by_its_beginning_and_by_run_id(web: WebClient) -> None:
    first = make_run("order-1", status=RunStatus.FAILED)
    second = make_run("order-1", run_number=2)
    make_run("order-10")
    make_run("Order-1")
    make_run("100%_order")
    found = [(run.flow_id, run.run_number) for run in rows_on(web, list_of(Run, q=" order-1 "))]
    assert found == [("order-1", 2), ("order-1", 1), ("order-10", 1)]
    assert [run.pk for run in rows_on(web, list_of(Run, q=first.pk))] == [first.pk]
    assert [run.flow_id for run in rows_on(web, list_of(Run, q="100%_"))] == ["100%_order"]
    assert rows_on(web, list_of(Run, q="%")) == rows_on(web, list_of(Run, q="rder")) == []
    assert second.run_id != first.run_id


def test_a_search_by_prefix_is_paged_too(web: WebClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 2)
    for number in range(5):
        make_run(f"order-{number // 2}", run_number=1 + number % 2, status=RunStatus.COMPLETED)
    make_run("other")
    seen, query = [], "?q=order"
    while query:
        page: Any = web.get(list_of(Run) + query)
        seen += [(run.flow_id, run.run_number) for run in page.context["cl"].result_list]
        query = page.context["cl"].next_page_query
    assert seen == [("order-0", 2), ("order-0", 1), ("order-1", 2), ("order-1", 1), ("order-2", 1)]


def test_runs_are_filtered_by_status_and_type(web: WebClient) -> None:
    make_run("a", flow_type="Order")
    make_run("b", flow_type="Order", status=RunStatus.FAILED)
    make_run("c", flow_type="Refund", status=RunStatus.FAILED)
    assert {run.flow_id for run in rows_on(web, list_of(Run, status="FAILED"))} == {"b", "c"}
    assert [run.flow_id for run in rows_on(web, list_of(Run, status="FAILED", flow_type="Order"))] == ["b"]
    assert rows_on(web, list_of(Run, status="made up")) == []


def test_steps_are_filtered_by_state(web: WebClient) -> None:
    run = make_busy_run()
    make_step(run, "Broken", StepState.FAILED)
    by_state = {state: [str(step) for step in rows_on(web, list_of(StepRecord, state=state))] for state in StepState}
    assert by_state[StepState.BACKOFF] == ["Notify-1"]
    assert by_state[StepState.FAILED] == ["Broken-1"]
    assert by_state[StepState.COMPLETED] == ["Reserve-1"]
    assert by_state[StepState.CANCELED] == []
    opened = {str(step) for step in rows_on(web, list_of(StepRecord, state="open"))}
    assert opened == {"Charge-1", "Refund-1", "Notify-1"}
    assert rows_on(web, list_of(StepRecord, state="made up")) == []


@pytest.mark.parametrize("model", MODELS[1:])
def test_rows_are_narrowed_to_a_run_or_a_flow_id(web: WebClient, model: type[Model]) -> None:
    wanted = make_busy_run("wanted")
    make_busy_run("other")
    for parameters in ({"run_id": wanted.run_id}, {"q": wanted.run_id}, {"q": "wanted"}):
        found = rows_on(web, list_of(model, **parameters))
        assert found
        assert {row.run_id for row in found} == {wanted.run_id}
    assert rows_on(web, list_of(model, q="nobody")) == []


def test_attributes_of_a_run_are_found_by_name_and_instance(web: WebClient) -> None:
    run = make_run()
    write(run, "total", 1)
    write(run, "profile", 2, "a/b c")
    write(run, "profile", 3, "d")
    for term, values in (("total", [1]), ("profile", [2, 3]), ("profile/a%2Fb%20c", [2]), ("nothing", [])):
        found = rows_on(web, list_of(AttributeRecord, run_id=run.run_id, q=term))
        assert sorted(row.value for row in found) == values


def test_locks_are_listed_with_their_age_longest_first(web: WebClient) -> None:
    make_busy_run(size=2)
    page: Any = web.get(list_of(LockHolder))
    assert [row.key for row in page.context["cl"].result_list] == ["balance/account-1", "balance/account-2"]
    assert b'<td class="field-_age">20 s</td>' in page.content
    page = web.get(list_of(LockWaiter))
    assert [row.step_execution_id for row in page.context["cl"].result_list] == ["Refund-1", "Refund-2"]
    assert b'<td class="field-_age">10 s</td>' in page.content


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "query",
    [
        "?after=x",
        "?after=[]",
        '?after=["x","y","z"]',
        "?after=[1,2]",
        "?after=" + "[" * 5000,
        "?after=%00",
        "?q=a%00b",
        "?run_id=x",
        "?p=7",
        "?o=2",
        "?all=",
        "?_facets=True",
        "?e=1",
        "?run_id__gt=0",
        "?flow_id__contains=a",
        "?value__a=1",
    ],
)
def test_a_made_up_address_is_answered(web: WebClient, model: type[Model], query: str) -> None:
    make_busy_run()
    assert web.get(list_of(model) + query).status_code in (200, 302, 400)


@pytest.mark.parametrize("model", MODELS)
def test_nothing_can_be_added_changed_or_deleted(web: WebClient, model: type[Model]) -> None:
    make_busy_run()
    row = first_of(model)
    assert web.get(page_of(row)).status_code == 200
    assert web.get(page_of(row, "history")).status_code == 200
    assert b'name="_save"' not in web.get(page_of(row)).content
    assert web.get(list_of(model) + "add/").status_code == 403
    assert web.post(page_of(row), {"status": "FAILED"}).status_code == 403
    assert web.post(page_of(row, "delete"), {"post": "yes"}).status_code == 403
    assert web.post(list_of(model), {"action": "delete_selected", "_selected_action": row.pk}).status_code in (200, 403)
    assert first_of(model) == row


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "key", ["x", "x:y", "{run}:", "{run}:y-", "{run}:y-99999999999999", "{run}:[[", "{run}:%00", "{run}:é-1"]
)
def test_a_row_that_is_not_there_is_not_found(web: WebClient, model: type[Model], key: str) -> None:
    run = make_busy_run()
    address = list_of(model) + key.replace("{run}", "00000000-0000-7000-8000-000000000000") + "/change/"
    assert web.get(address).status_code == 302
    if model is not Run:
        address = list_of(model) + key.replace("{run}", str(run.run_id)) + "/change/"
        assert web.get(address).status_code == 302


@pytest.mark.parametrize("model", MODELS)
def test_a_page_needs_the_right_to_view_its_model(db: None, client: WebClient, model: type[Model]) -> None:
    make_busy_run()
    user = User.objects.create(username="staff", is_staff=True)
    client.force_login(user)
    assert client.get(list_of(model)).status_code == 403
    assert client.get(page_of(first_of(model))).status_code == 403
    codename = f"view_{model._meta.model_name}"
    user.user_permissions.add(Permission.objects.get(content_type__app_label="dexflows", codename=codename))
    assert client.get(list_of(model)).status_code == 200
    assert client.get(page_of(first_of(model))).status_code == 200


def test_ids_of_any_characters_lead_to_their_rows(web: WebClient) -> None:
    run = make_run()
    odd = ['a"b', "a/b", "a_2Fb", "ü [x] %41", "a:b\\n", "<b>", "?#&=+;"]
    for number, instance in enumerate(odd):
        write(run, "map", number, instance)
    for row in AttributeRecord.objects.filter(run_id=run.run_id):
        page: Any = web.get(page_of(row))
        assert page.status_code == 200, row.pk
        assert page.context["original"].pk == row.pk
    assert EventRecord.objects.at(f"{run.run_id}:1").count() == 0
