"""The directory over HTTP: start it, save a profile, read a profile."""

from __future__ import annotations

import msgspec
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from dexflows.api.parsing import StrictJSONParser
from dexflows.api.problems import ProblemError
from dexflows.api.schema import problems
from directory import client
from directory.api.serializers import CustomerProfileSerializer, DirectoryStartedSerializer, ProfileQuerySerializer
from directory.flows import FLOW_ID
from directory.profile import CustomerProfile

_NOT_STARTED = "flow_not_active_or_not_found"
_TAGS = ["customer directory"]
_NOT_FOUND = "customer_profile_not_found"


class StartView(APIView):
    """Starts the customer directory."""

    parser_classes = (StrictJSONParser,)

    @extend_schema(
        operation_id="start_customer_directory",
        tags=_TAGS,
        request=None,
        responses={200: DirectoryStartedSerializer, **problems()},
    )
    def post(self, request: Request) -> Response:
        """Start the directory. Safe to repeat: a directory that runs already is left alone and its run ID returned."""
        return Response({"flowID": FLOW_ID, "runID": client.start_directory()})


class CustomerProfileView(APIView):
    """Saves and reads one customer's profile."""

    parser_classes = (StrictJSONParser,)

    @extend_schema(
        operation_id="upsert_customer_profile",
        tags=_TAGS,
        request=CustomerProfileSerializer,
        responses={
            200: CustomerProfileSerializer,
            **problems(
                {
                    400: ["invalid_value"],
                    404: [_NOT_STARTED],
                    409: ["rpc_lock_conflict"],
                    413: ["value_too_large"],
                    415: ["unsupported_media_type"],
                    422: ["worker_error"],
                    504: ["rpc_timeout"],
                }
            ),
        },
    )
    def put(self, request: Request) -> Response:
        """Insert or replace the profile of one address. 409 at once while another writer holds its partition."""
        serializer = CustomerProfileSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return _profile_response(client.upsert_profile(CustomerProfile(**serializer.validated_data)))

    @extend_schema(
        operation_id="get_customer_profile",
        tags=_TAGS,
        parameters=[ProfileQuerySerializer],
        responses={
            200: CustomerProfileSerializer,
            **problems(
                {
                    400: ["invalid_value"],
                    404: [_NOT_FOUND, _NOT_STARTED],
                    422: ["worker_error"],
                    504: ["rpc_timeout"],
                }
            ),
        },
    )
    def get(self, request: Request) -> Response:
        """Read the profile of one address: one partition is read, whatever the directory's size."""
        serializer = ProfileQuerySerializer(data=request.query_params)
        serializer.is_valid(raise_exception=True)
        profile = client.find_profile(serializer.validated_data["emailAddress"])
        if profile is None:
            raise ProblemError(status=404, code=_NOT_FOUND, detail="No profile is saved under this address.")
        return _profile_response(profile)


def _profile_response(profile: CustomerProfile) -> Response:
    return Response(msgspec.to_builtins(profile))
