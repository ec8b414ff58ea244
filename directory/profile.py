"""One customer profile, and what its texts may hold."""

from __future__ import annotations

from typing import Final

import msgspec

PROFILE_FIELDS: Final = ("emailAddress", "fullName", "companyName", "customerTier")


class CustomerProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the directory knows about one customer. Stored and served under the names in ``PROFILE_FIELDS``."""

    email_address: str
    full_name: str
    company_name: str
    customer_tier: str


def text_fault(value: object) -> str | None:
    """Why ``value`` cannot be a text of a profile, or None if it can."""
    if not isinstance(value, str):
        return "Must be a string."
    if not value:
        return "Must not be empty."
    if "\x00" in value:
        return "Must not contain the character U+0000."
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "Must be valid Unicode: a lone surrogate was found."
    return None
