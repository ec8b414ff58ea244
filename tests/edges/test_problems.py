"""Problem bodies: every error leaves in one shape, and nothing inside leaves with it."""

from __future__ import annotations

import json
import logging
from typing import Any

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from psycopg_pool import PoolTimeout
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from dexflows import errors
from dexflows.api.parsing import StrictJSONParser
from dexflows.api.problems import ERROR_PROBLEMS, ProblemError, exception_handler

SECRET = "SELECT password FROM users at db.internal"

ERRORS: list[tuple[Exception, int, str]] = [
    (errors.ValueMappingError("$.a", "expected str"), 400, "invalid_value"),
    (errors.InvalidRequestError("bad Flow ID"), 400, "invalid_value"),
    (errors.InvalidSearchQueryError("unknown key", 4), 400, "invalid_query"),
    (errors.FlowNotFoundError("no such run"), 404, "flow_not_found"),
    (errors.FlowNotActiveOrNotFoundError("not running"), 404, "flow_not_active_or_not_found"),
    (errors.FlowAlreadyStartedError("f", "r"), 409, "flow_already_started"),
    (errors.RpcLockConflictError(("status", "map/a%20b")), 409, "rpc_lock_conflict"),
    (errors.FlowClosingError("closing"), 409, "flow_closing"),
    (errors.ValueTooLargeError("a", 5, 4), 413, "value_too_large"),
    (errors.WorkerInvocationError("KeyError", "'x'"), 422, "worker_error"),
    (errors.RpcTimeoutError("too slow"), 504, "rpc_timeout"),
    (errors.LongPollTimeoutError("too slow"), 408, "long_poll_timeout"),
    (errors.UnavailableError(SECRET), 503, "unavailable"),
    (OperationalError(SECRET), 503, "unavailable"),
    (InterfaceError(SECRET), 503, "unavailable"),
    (psycopg.OperationalError(SECRET), 503, "unavailable"),
    (PoolTimeout(SECRET), 503, "unavailable"),
    (errors.UndeclaredAttributeError(SECRET), 500, "internal_error"),
    (RuntimeError(SECRET), 500, "internal_error"),
    (Http404(SECRET), 404, "not_found"),
    (PermissionDenied(SECRET), 403, "permission_denied"),
    (RequestDataTooBig(SECRET), 413, "value_too_large"),
    (SuspiciousOperation(SECRET), 400, "invalid_value"),
    (exceptions.ParseError("Malformed JSON"), 400, "invalid_value"),
    (exceptions.ValidationError({"a": ["wrong"]}), 400, "invalid_value"),
    (exceptions.NotFound(), 404, "not_found"),
    (exceptions.MethodNotAllowed("PATCH"), 405, "method_not_allowed"),
    (exceptions.NotAcceptable(), 406, "not_acceptable"),
    (exceptions.UnsupportedMediaType("text/csv"), 415, "unsupported_media_type"),
    (exceptions.Throttled(wait=7), 429, "throttled"),
    (ProblemError(status=404, code="customer_profile_not_found", detail="none"), 404, "customer_profile_not_found"),
]


def answer(error: Exception) -> tuple[HttpResponse, dict[str, Any]]:
    """What a view that raises ``error`` answers."""

    class Raising(APIView):
        authentication_classes = ()
        permission_classes = ()
        parser_classes = (StrictJSONParser,)

        def get_exception_handler(self) -> Any:
            return exception_handler

        def put(self, request: Request) -> Response:
            raise error

    response = Raising.as_view()(APIRequestFactory().put("/"))
    return response, json.loads(response.content)


@pytest.mark.parametrize(("error", "status", "code"), ERRORS, ids=lambda value: type(value).__name__)
def test_every_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    response, body = answer(error)
    assert response.status_code == body["status"] == status
    assert body["code"] == code
    assert response["Content-Type"] == "application/problem+json"
    assert body["title"]
    assert isinstance(body["detail"], str)
    assert body["type"]
    assert SECRET not in response.content.decode()


def test_every_error_a_caller_can_meet_is_in_the_table() -> None:
    inside_handlers = {
        errors.FlowDefinitionError,
        errors.UndeclaredAttributeError,
        errors.AttributeMapNotLoadedError,
        errors.ChannelNotLoadedError,
        errors.InvalidStepResultError,
    }
    tree = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DexflowsError) and value is not errors.DexflowsError
    }
    assert tree - set(ERROR_PROBLEMS) == inside_handlers


def test_a_lock_conflict_names_the_locks_and_when_to_come_back() -> None:
    response, body = answer(errors.RpcLockConflictError(("status", "map/a%20b")))
    assert body["locks"] == ["status", "map/a%20b"]
    assert int(response["Retry-After"]) >= 1


def test_a_database_that_is_away_says_when_to_come_back() -> None:
    response, _ = answer(OperationalError("gone"))
    assert int(response["Retry-After"]) >= 1


def test_a_handler_error_has_its_type_and_detail() -> None:
    _, body = answer(errors.WorkerInvocationError("KeyError", "'x'"))
    assert (body["errorType"], body["errorDetail"]) == ("KeyError", "'x'")


def test_invalid_fields_are_listed() -> None:
    _, body = answer(exceptions.ValidationError({"fullName": ["Must not be empty."]}))
    assert body["errors"] == {"fullName": ["Must not be empty."]}


def test_a_text_that_is_no_valid_unicode_still_leaves() -> None:
    _, body = answer(errors.WorkerInvocationError("ValueError", "bad \ud800"))
    assert body["errorDetail"] == "bad \ud800"


def test_a_refused_method_says_which_are_allowed() -> None:
    response, _ = answer(exceptions.MethodNotAllowed("PUT"))
    assert "PUT" in response["Allow"]


def test_extras_cannot_replace_the_code() -> None:
    problem = ProblemError(status=409, code="flow_closing", detail="d", extras={"code": "other", "locks": []})
    assert json.loads(problem.to_response().content)["code"] == "flow_closing"


def test_a_fault_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="dexflows.api.problems"):
        answer(RuntimeError("why it failed"))
    (record,) = caplog.records
    assert record.exc_info
    assert "why it failed" in str(record.exc_info[1])


def test_a_callers_fault_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="dexflows.api.problems"):
        answer(errors.FlowNotFoundError("no such run"))
    assert not caplog.records
