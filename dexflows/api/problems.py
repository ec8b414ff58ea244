"""Every error of the HTTP API as one shape: ``application/problem+json`` (RFC 9457) with a stable ``code``.

``ERROR_PROBLEMS`` is the one table from the error tree to status and code. What is not in it is a fault of ours or of
a handler: it is logged with its traceback and leaves as a bare 500.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import psycopg
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse
from django.http.request import UnreadablePostError
from rest_framework import exceptions
from rest_framework.views import set_rollback

from dexflows import errors

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
INTERNAL_ERROR: Final = "internal_error"

ERROR_PROBLEMS: Final[Mapping[type[Exception], tuple[int, str]]] = {
    errors.ValueMappingError: (400, "invalid_value"),
    errors.InvalidRequestError: (400, "invalid_value"),
    errors.InvalidSearchQueryError: (400, "invalid_query"),
    errors.FlowNotFoundError: (404, "flow_not_found"),
    errors.ChannelMessageNotFoundError: (404, "channel_message_not_found"),
    errors.FlowNotActiveOrNotFoundError: (404, "flow_not_active_or_not_found"),
    errors.FlowAlreadyStartedError: (409, "flow_already_started"),
    errors.RpcLockConflictError: (409, "rpc_lock_conflict"),
    errors.FlowClosingError: (409, "flow_closing"),
    errors.ValueTooLargeError: (413, "value_too_large"),
    errors.WorkerInvocationError: (422, "worker_error"),
    errors.LongPollTimeoutError: (408, "long_poll_timeout"),
    errors.RpcTimeoutError: (504, "rpc_timeout"),
    errors.UnavailableError: (503, "unavailable"),
}
# The database or its pool does not answer. Their own texts name hosts and SQL, so they are not passed on.
_AWAY: Final = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
_REQUEST_PROBLEMS: Final[Mapping[type[Exception], tuple[int, str, str]]] = {
    Http404: (404, "not_found", "There is nothing at this address."),
    PermissionDenied: (403, "permission_denied", "You may not do this."),
    RequestDataTooBig: (413, "value_too_large", "The body is too long."),
    SuspiciousOperation: (400, "invalid_value", "The request is not acceptable."),
    UnreadablePostError: (400, "invalid_value", "The body ended early."),
}


@dataclass(kw_only=True)
class ProblemError(Exception):
    """An error with its HTTP form. Views raise it for what the error tree does not name."""

    status: int
    code: str
    detail: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"

    def to_response(self) -> HttpResponse:
        """The response: extras cannot replace the members that every problem has."""
        body = dict(self.extras) | {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        # Escaped to ASCII, so that even a text with a lone surrogate can leave.
        content = json.dumps(body, default=str)
        return HttpResponse(content, status=self.status, content_type=CONTENT_TYPE, headers=self.headers)


def exception_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Django REST framework's ``EXCEPTION_HANDLER``: what any exception of a view looks like from outside."""
    set_rollback()
    problem = problem_of(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error(
            "%s answered %d %s", type(context.get("view")).__name__, problem.status, problem.code, exc_info=error
        )
    return problem.to_response()


def problem_of(error: Exception) -> ProblemError:
    """The problem that stands for ``error``."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, exceptions.APIException):
        return _of_framework_error(error)
    if isinstance(error, _AWAY):
        return _unavailable()
    for ancestor in type(error).__mro__:
        if ancestor in ERROR_PROBLEMS:
            return _of_known_error(error, *ERROR_PROBLEMS[ancestor])
        if ancestor in _REQUEST_PROBLEMS:
            status, code, detail = _REQUEST_PROBLEMS[ancestor]
            return ProblemError(status=status, code=code, detail=detail)
    return ProblemError(status=500, code=INTERNAL_ERROR, detail="The server failed to answer this request.")


def _of_known_error(error: Exception, status: int, code: str) -> ProblemError:
    match error:
        case errors.UnavailableError():
            return _unavailable()
        case errors.RpcLockConflictError():
            return ProblemError(
                status=status, code=code, detail=str(error), extras={"locks": list(error.locks)}, headers=_retry_after()
            )
        case errors.WorkerInvocationError():
            extras = {"errorType": error.error_type, "errorDetail": error.error_detail}
            return ProblemError(status=status, code=code, detail=str(error), extras=extras)
        case _:
            return ProblemError(status=status, code=code, detail=str(error))


def _of_framework_error(error: exceptions.APIException) -> ProblemError:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(challenge)
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait) or 1)
    invalid = error.status_code == HTTPStatus.BAD_REQUEST
    code = "invalid_value" if invalid else error.default_code
    if not isinstance(error, exceptions.ValidationError):
        return ProblemError(status=error.status_code, code=code, detail=str(error.detail), headers=headers)
    return ProblemError(
        status=error.status_code,
        code=code,
        detail="The request has invalid fields.",
        extras={"errors": error.detail},
        headers=headers,
    )


def _unavailable() -> ProblemError:
    return ProblemError(
        status=503, code="unavailable", detail="The database does not answer. Try again.", headers=_retry_after()
    )


def _retry_after() -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_SECONDS)}
