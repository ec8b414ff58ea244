"""Where a customer lives: the partition of an e-mail address, the same in every language.

The rule is part of the durable schema. Changing any line of it moves existing profiles out of reach, so the partition
count and the algorithm's name are recorded in the database and compared at start-up (``directory.schema``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PARTITION_COUNT: Final = 1000
ALGORITHM: Final = "ascii-lower/fnv1a32/modulo"

_OFFSET_BASIS: Final = 2166136261
_PRIME: Final = 16777619
_MASK: Final = 0xFFFFFFFF
# str.strip() without arguments would also take U+001C to U+001F, which are part of the address here.
_ASCII_WHITESPACE: Final = " \t\n\v\f\r"


class InvalidEmailAddressError(ValueError):
    """The address has no partition: it is not a string, not ASCII, or empty once stripped."""


@dataclass(frozen=True, slots=True)
class EmailPartition:
    """The place of one e-mail address: ``instance`` is the AttributeMap instance that holds ``canonical_email``."""

    canonical_email: str
    fnv1a32: int
    instance: str


def fnv1a32(data: bytes) -> int:
    """The 32-bit FNV-1a hash of ``data``."""
    value = _OFFSET_BASIS
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def canonical_email(address: str) -> str:
    """``address`` stripped of ASCII whitespace and with A to Z in lower case; raises ``InvalidEmailAddressError``."""
    if not isinstance(address, str):
        raise InvalidEmailAddressError("The e-mail address must be a string.")
    if not address.isascii():
        raise InvalidEmailAddressError("The e-mail address must contain ASCII characters only.")
    canonical = address.strip(_ASCII_WHITESPACE).lower()
    if not canonical:
        raise InvalidEmailAddressError("The e-mail address must not be empty.")
    return canonical


def email_partition(address: str, partition_count: int = PARTITION_COUNT) -> EmailPartition:
    """The partition of ``address``; raises ``InvalidEmailAddressError`` (a ``ValueError``) when it has none.

    >>> email_partition("  Alice@Example.COM").instance
    'partition-278'
    """
    canonical = canonical_email(address)
    digest = fnv1a32(canonical.encode("ascii"))
    return EmailPartition(canonical, digest, f"partition-{digest % partition_count:03d}")
