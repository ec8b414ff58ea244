"""The directory over HTTP, on the real engine and database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from rest_framework.permissions import IsAuthenticated
from rest_framework.test import APIClient, APIRequestFactory

from dexflows import RPCInvokeOptions, WorkerInvocationError
from dexflows.client import Client
from dexflows.models import AttributeValue
from directory import client
from directory.api.views import CustomerProfileView
from directory.flows import FLOW_ID, PROFILES_ATTRIBUTE, customer_directory_flow
from directory.partitioning import email_partition
from directory.profile import CustomerProfile

BASE = "/patterns/hash-partitioned-attribute-map"
PROFILE_URL = f"{BASE}/customer-profile"
ALICE = {
    "emailAddress": "alice@example.com",
    "fullName": "Alice Ä.",
    "companyName": " Blue & Co ",
    "customerTier": "gold",
}

pytestmark = pytest.mark.django_db


def put(api: APIClient, body: Any) -> Any:
    return api.put(PROFILE_URL, body, format="json")


def get(api: APIClient, address: str) -> Any:
    return api.get(PROFILE_URL, {"emailAddress": address})


def assert_problem(response: Any, status: int, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (status, code), response.content
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_start_is_idempotent(api: APIClient) -> None:
    first, second = api.post(f"{BASE}/start"), api.post(f"{BASE}/start")
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == {"flowID": "customer-directory", "runID": first.json()["runID"]}
    assert Client().describe_flow(FLOW_ID).run_id == first.json()["runID"]


def test_nothing_works_before_the_start(api: APIClient) -> None:
    assert_problem(put(api, ALICE), 404, "flow_not_active_or_not_found")
    assert_problem(get(api, "alice@example.com"), 404, "flow_not_active_or_not_found")


@pytest.mark.usefixtures("directory")
class TestProfiles:
    """Saving and reading profiles of a started directory."""

    def test_a_saved_profile_is_read_back_under_any_spelling(self, api: APIClient) -> None:
        saved = put(api, ALICE | {"emailAddress": "\t Alice@EXAMPLE.com\r\n"})
        assert (saved.status_code, saved.json()) == (200, ALICE)
        for spelling in ("alice@example.com", "ALICE@example.com", " alice@example.com "):
            found = get(api, spelling)
            assert (found.status_code, found.json()) == (200, ALICE)

    def test_saving_again_replaces_the_profile_and_keeps_its_neighbours(self, api: APIClient) -> None:
        # Two addresses of one partition, from the published vectors.
        put(api, ALICE | {"emailAddress": "user7@example.com"})
        put(api, ALICE | {"emailAddress": "user14@example.com"})
        put(api, ALICE | {"emailAddress": "USER7@example.com", "fullName": "Seven"})
        assert get(api, "user7@example.com").json()["fullName"] == "Seven"
        assert get(api, "user14@example.com").json()["fullName"] == ALICE["fullName"]

    def test_an_absent_partition_and_an_absent_address_are_both_not_found(self, api: APIClient) -> None:
        put(api, ALICE | {"emailAddress": "user7@example.com"})
        assert_problem(get(api, "user14@example.com"), 404, "customer_profile_not_found")
        assert_problem(get(api, "nobody@example.com"), 404, "customer_profile_not_found")

    def test_a_profile_lies_in_the_partition_of_its_address(self, api: APIClient, directory: str) -> None:
        put(api, ALICE)
        row = AttributeValue.objects.get(run_id=directory, name=PROFILES_ATTRIBUTE)
        assert row.instance == email_partition("alice@example.com").instance == "partition-278"
        assert row.value == {"alice@example.com": ALICE}

    @pytest.mark.parametrize("field", ALICE)
    @pytest.mark.parametrize("value", ["", None, 5, True, ["x"], {"x": 1}, "nul\x00"], ids=repr)
    def test_a_field_that_is_no_text_is_refused(self, api: APIClient, field: str, value: Any) -> None:
        response = put(api, ALICE | {field: value})
        assert_problem(response, 400, "invalid_value")
        assert list(response.json()["errors"]) == [field]

    @pytest.mark.parametrize("field", ALICE)
    def test_a_missing_field_is_refused(self, api: APIClient, field: str) -> None:
        response = put(api, {name: value for name, value in ALICE.items() if name != field})
        assert_problem(response, 400, "invalid_value")
        assert list(response.json()["errors"]) == [field]

    @pytest.mark.parametrize("address", [" ", "\t\r\n", "ü@example.com", "a@b.c\u00a0", "mi\u212ae@example.com"])
    def test_an_address_without_a_partition_is_refused(self, api: APIClient, address: str) -> None:
        assert_problem(put(api, ALICE | {"emailAddress": address}), 400, "invalid_value")
        assert_problem(get(api, address), 400, "invalid_value")

    @pytest.mark.parametrize("query", ["", "?", "?emailAddress=", "?emailaddress=a@b.c", "?emailAddress=%00"])
    def test_a_read_without_a_usable_address_is_refused(self, api: APIClient, query: str) -> None:
        assert_problem(api.get(PROFILE_URL + query), 400, "invalid_value")

    @pytest.mark.parametrize("query", ["%ED%A0%80", "%FF", "a%80@b.c"])
    def test_an_address_that_is_not_utf8_is_refused(self, api: APIClient, query: str) -> None:
        assert_problem(api.get(f"{PROFILE_URL}?emailAddress={query}"), 400, "invalid_value")

    def test_an_unknown_field_is_refused(self, api: APIClient) -> None:
        response = put(api, ALICE | {"tier": "gold"})
        assert_problem(response, 400, "invalid_value")
        assert list(response.json()["errors"]) == ["tier"]

    @pytest.mark.parametrize("body", ["null", "[]", '"text"', "5", "{", "", "NaN", '{"emailAddress": NaN}'])
    def test_a_body_that_is_no_object_is_refused(self, api: APIClient, body: str) -> None:
        response = api.put(PROFILE_URL, body.encode(), content_type="application/json")
        assert_problem(response, 400, "invalid_value")

    @pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udc00"', "1e400", "[" * 20_000, "1" * 4301])
    def test_hostile_json_is_refused(self, api: APIClient, text: str) -> None:
        body = json.dumps(ALICE)[:-1] + f', "fullName": {text}}}'
        response = api.put(PROFILE_URL, body.encode(), content_type="application/json")
        assert_problem(response, 400, "invalid_value")

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    def test_another_content_type_is_refused(self, api: APIClient, content_type: str) -> None:
        response = api.put(PROFILE_URL, json.dumps(ALICE), content_type=content_type)
        assert_problem(response, 415, "unsupported_media_type")

    def test_a_body_over_the_limit_is_refused(self, api: APIClient, settings: Any) -> None:
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
        assert_problem(put(api, ALICE | {"fullName": "x" * 1000}), 413, "value_too_large")

    def test_another_method_is_refused(self, api: APIClient) -> None:
        assert_problem(api.delete(PROFILE_URL), 405, "method_not_allowed")
        assert_problem(api.get(f"{BASE}/start"), 405, "method_not_allowed")

    def test_any_text_comes_back_as_it_was_sent(self, api: APIClient) -> None:
        odd = {"fullName": " \u0001 \u2028 𝄞 e\u0301 \\ \" ' <b> ", "companyName": "\t", "customerTier": "ﷺ" * 50}
        assert put(api, ALICE | odd).status_code == 200
        assert get(api, ALICE["emailAddress"]).json() == ALICE | odd


def test_a_stopped_directory_answers_no_upsert_and_can_be_started_again(api: APIClient, directory: str) -> None:
    put(api, ALICE)
    Client().stop_flow(FLOW_ID)
    assert_problem(put(api, ALICE), 404, "flow_not_active_or_not_found")
    assert get(api, "alice@example.com").json() == ALICE, "a closed run can still be read"
    again = api.post(f"{BASE}/start").json()["runID"]
    assert again != directory
    assert_problem(get(api, "alice@example.com"), 404, "customer_profile_not_found")
    assert put(api, ALICE).status_code == 200


def test_a_start_that_is_rolled_back_leaves_nothing(api: APIClient) -> None:
    with transaction.atomic():
        client.start_directory()
        transaction.set_rollback(True)
    assert_problem(put(api, ALICE), 404, "flow_not_active_or_not_found")


def test_a_handler_called_with_a_wrong_partition_misplaces_nothing(directory: str) -> None:
    flow = customer_directory_flow
    wrong = RPCInvokeOptions(
        lock_attribute_map_instances=(flow.profiles.lock("partition-000"),),
        load_attribute_map_instances=(flow.profiles.load("partition-000"),),
    )
    profile = CustomerProfile(email_address="alice@example.com", full_name="A", company_name="B", customer_tier="C")
    with pytest.raises(WorkerInvocationError):
        Client().invoke_rpc(flow.upsert_customer_profile, FLOW_ID, profile, options=wrong)
    assert client.find_profile("alice@example.com") is None


@pytest.mark.usefixtures("directory")
def test_a_database_that_is_away_is_503_without_its_address(api: APIClient) -> None:
    def away(*_: Any) -> Any:
        raise OperationalError('connection to server at "db.internal" failed')

    with connection.execute_wrapper(away):
        responses = [put(api, ALICE), get(api, "alice@example.com"), api.post(f"{BASE}/start")]
    for response in responses:
        assert_problem(response, 503, "unavailable")
        assert int(response["Retry-After"]) >= 1
        assert b"db.internal" not in response.content


def test_a_stranger_gets_a_problem_and_no_profile() -> None:
    view = CustomerProfileView.as_view(permission_classes=[IsAuthenticated])
    response = view(APIRequestFactory().get("/", {"emailAddress": "alice@example.com"}))
    assert response.status_code in (401, 403)
    assert response["Content-Type"] == "application/problem+json"
