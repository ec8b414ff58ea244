"""Values to JSON text and back, exactly, by their declared Python type."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from dexflows.errors import ValueMappingError, ValueTooLargeError

T = TypeVar("T")
DEFAULT_MAX_VALUE_BYTES = 4 * 1024 * 1024


class Codec(Generic[T]):
    """Encodes and decodes one declared type."""

    def __init__(self, declared: Any) -> None:
        self.type = declared
        self.type_name: str = getattr(declared, "__name__", str(declared))
        self._decoder = msgspec.json.Decoder(declared)

    def encode(self, value: T, *, key: str = "", limit: int = DEFAULT_MAX_VALUE_BYTES) -> str:
        """The JSON text of a value."""
        raw = msgspec.json.encode(value)
        self.decode(raw)
        if len(raw) > limit:
            raise ValueTooLargeError(key, len(raw), limit)
        return raw.decode()

    def decode(self, raw: str | bytes) -> T:
        """The value of a JSON text."""
        try:
            return cast("T", self._decoder.decode(raw))
        except msgspec.DecodeError as error:
            raise ValueMappingError("$", str(error)) from None


@lru_cache(maxsize=4096)
def codec_for(declared: Any) -> Codec[Any]:
    """The codec of a declared type."""
    return Codec(declared)


def codec_for_value(value: object) -> Codec[Any]:
    """The codec for a value by its runtime type."""
    return codec_for(type(value))


def encode_output(value: object, *, key: str = "", limit: int = DEFAULT_MAX_VALUE_BYTES) -> str:
    """The JSON text of a value by its runtime type."""
    return codec_for_value(value).encode(value, key=key, limit=limit)
