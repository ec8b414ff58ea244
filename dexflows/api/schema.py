"""The problem body as the OpenAPI schema shows it."""

from __future__ import annotations

from collections.abc import Iterable

from drf_spectacular.utils import OpenApiResponse, inline_serializer
from rest_framework import serializers

# Made inline because a Serializer has an attribute `errors` of its own.
ProblemSerializer = inline_serializer(
    "Problem",
    {
        "type": serializers.CharField(help_text="Always about:blank: `code` tells the kind."),
        "title": serializers.CharField(),
        "status": serializers.IntegerField(),
        "detail": serializers.CharField(help_text="For people: branch on `code` instead."),
        "code": serializers.CharField(),
        "errors": serializers.JSONField(required=False, help_text="Messages per field, for invalid_value."),
        "locks": serializers.ListField(
            child=serializers.CharField(), required=False, help_text="What was not free, for rpc_lock_conflict."
        ),
        "errorType": serializers.CharField(required=False, help_text="The handler's exception, for worker_error."),
        "errorDetail": serializers.CharField(required=False, help_text="Its text, for worker_error."),
    },
)


def problem_response(codes: Iterable[str]) -> OpenApiResponse:
    """The documentation of one error status that answers with any of ``codes``."""
    return OpenApiResponse(ProblemSerializer, description=" or ".join(f"`{code}`" for code in codes))


# Any request can meet these, whatever it asks for.
COMMON_PROBLEMS = {
    401: problem_response(["not_authenticated", "authentication_failed"]),
    403: problem_response(["permission_denied", "not_authenticated"]),
    405: problem_response(["method_not_allowed"]),
    406: problem_response(["not_acceptable"]),
    500: problem_response(["internal_error"]),
    503: problem_response(["unavailable"]),
}
