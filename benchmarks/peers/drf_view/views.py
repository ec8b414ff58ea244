"""The same request and answer as the directory's, with plain DRF and the ORM."""

from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from benchmarks.peers.drf_view.models import Profile


class ProfileSerializer(serializers.Serializer[Profile]):
    """Four non-empty strings."""

    emailAddress = serializers.CharField(source="email_address", max_length=320)  # noqa: N815
    fullName = serializers.CharField(source="full_name", max_length=200)  # noqa: N815
    companyName = serializers.CharField(source="company_name", max_length=200)  # noqa: N815
    customerTier = serializers.CharField(source="customer_tier", max_length=50)  # noqa: N815


class CustomerProfileView(APIView):
    """Saves and reads one profile."""

    parser_classes = (JSONParser,)

    def put(self, request: Request) -> Response:
        """Insert or replace. `update_or_create` opens a transaction and selects the row for update by itself."""
        serializer = ProfileSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        address = values.pop("email_address").lower()
        profile, _ = Profile.objects.update_or_create(email_address=address, defaults=values)
        return Response(ProfileSerializer(profile).data)

    def get(self, request: Request) -> Response:
        """Read by primary key."""
        profile = get_object_or_404(Profile, email_address=request.query_params["emailAddress"].lower())
        return Response(ProfileSerializer(profile).data)
