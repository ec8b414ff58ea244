"""The problem body as the OpenAPI schema shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drf_spectacular.utils import OpenApiResponse, inline_serializer
from rest_framework import serializers

from dexflows.api.problems import CONTENT_TYPE

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


# Any request can meet these, whatever it asks for.
_COMMON: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("not_authenticated", "authentication_failed"),
    403: ("permission_denied", "not_authenticated"),
    405: ("method_not_allowed",),
    406: ("not_acceptable",),
    500: ("internal_error",),
    503: ("unavailable",),
}


def problems(codes_by_status: Mapping[int, Sequence[str]] | None = None) -> dict[Any, OpenApiResponse]:
    """How one operation may answer with an error: its own statuses with their codes, and the common ones."""
    return {
        (status, CONTENT_TYPE): OpenApiResponse(
            ProblemSerializer, description=" or ".join(f"`{code}`" for code in codes)
        )
        for status, codes in sorted({**_COMMON, **(codes_by_status or {})}.items())
    }
