"""The shapes of the directory's requests and answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from directory.partitioning import InvalidEmailAddressError, canonical_email
from directory.profile import CustomerProfile, text_fault


class ProfileTextField(serializers.CharField):
    """A non-empty string, kept as it was sent: numbers and booleans are refused, not converted."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if fault := text_fault(data):
            raise serializers.ValidationError(fault)
        return str(data)


class EmailAddressField(ProfileTextField):
    """An address that has a partition: ASCII, and not empty once stripped. Nothing else is asked of it."""

    def to_internal_value(self, data: Any) -> str:
        address = super().to_internal_value(data)
        try:
            canonical_email(address)
        except InvalidEmailAddressError as error:
            raise serializers.ValidationError(str(error)) from None
        return address


class CustomerProfileSerializer(serializers.Serializer[CustomerProfile]):
    """A customer's profile. It is saved under its canonical address: outer whitespace removed, A to Z in lower case."""

    emailAddress = EmailAddressField(source="email_address")  # noqa: N815
    fullName = ProfileTextField(source="full_name")  # noqa: N815
    companyName = ProfileTextField(source="company_name")  # noqa: N815
    customerTier = ProfileTextField(source="customer_tier")  # noqa: N815

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(set(self.initial_data) - set(self.fields)):
            raise serializers.ValidationError({name: ["Unknown field."] for name in unknown})
        return attrs


class ProfileQuerySerializer(serializers.Serializer[object]):
    """Which profile to read."""

    emailAddress = EmailAddressField(help_text="Any case and outer whitespace; percent-encode `+` as `%2B`.")  # noqa: N815


class DirectoryStartedSerializer(serializers.Serializer[object]):
    """The running directory."""

    flowID = serializers.CharField()  # noqa: N815
    runID = serializers.CharField()  # noqa: N815
