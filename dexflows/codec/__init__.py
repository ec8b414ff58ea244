"""Values to JSON text and back, exactly, by their declared Python type.

The text survives PostgreSQL's `jsonb`, which re-orders keys and prints numbers as `numeric`: what is decoded equals
what was encoded, in value and type. Types that JSON has no word for become strings, and members of a union that
share a JSON shape are named in the text (see `unions`).

Each type is compiled once into a plan. Where msgspec alone stores a type exactly, a quick check sends the value
straight to it; everything else, and everything that is to be refused, takes the walk that knows the path.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar, cast

import msgspec

from dexflows.codec.compile import Compiler
from dexflows.codec.plan import MAX_DEPTH, Misfit, Plan, Wire, refuse_too_deep
from dexflows.codec.runtime import RUNTIME_PLAN
from dexflows.codec.scalars import MAX_INT_DIGITS
from dexflows.errors import FlowDefinitionError, ValueMappingError, ValueTooLargeError

__all__ = [
    "DEFAULT_MAX_VALUE_BYTES",
    "MAX_DEPTH",
    "MAX_INT_DIGITS",
    "Codec",
    "codec_for",
    "codec_for_value",
    "encode_output",
]

T = TypeVar("T")
DEFAULT_MAX_VALUE_BYTES = 4 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_FAULTS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, AttributeError, RecursionError)
_TOO_DEEP = f"nested deeper than {MAX_DEPTH}"


class Codec(Generic[T]):
    """Encodes and decodes the values of one declared type; made by `codec_for`."""

    def __init__(self, plan: Plan, declared: Any) -> None:
        self.type = declared
        self.type_name = plan.name
        self._plan = plan
        self._check, self._decoder = _native(plan, declared)

    def __repr__(self) -> str:
        return f"Codec({self.type_name})"

    def encode(self, value: T, *, key: str = "", limit: int = DEFAULT_MAX_VALUE_BYTES) -> str:
        """The JSON text of a value, at most `limit` bytes; `key` names the value in a refusal."""
        raw = self._encode_native(value) or self._encode_walking(value)
        if len(raw) > limit:
            raise ValueTooLargeError(key, len(raw), limit)
        if self._plan.verify:
            self._verify(raw)
        return raw.decode()

    def decode(self, raw: str | bytes) -> T:
        """The value of a JSON text, which may come from outside."""
        if self._decoder is not None:
            try:
                value = self._decoder.decode(raw)
            except _FAULTS:
                pass  # the walk below knows the path and the reason
            else:
                nul = "\\u0000" if isinstance(raw, str) else b"\\u0000"
                if nul not in raw:  # type: ignore[operator]
                    return cast("T", value)
        return self._decode_walking(raw)

    def _encode_native(self, value: T) -> bytes | None:
        try:
            if self._check is None or not self._check(value):
                return None
            raw = _encode(value)
        except _FAULTS:
            return None
        # A NUL cannot be stored, and jsonb drops the sign of -0.0: both are the walk's business.
        return None if b"\\u0000" in raw or b"-0.0" in raw else raw

    def _encode_walking(self, value: T) -> bytes:
        try:
            wire = self._plan.dump(value)
            if self._plan.recursive:
                refuse_too_deep(wire)
            return _encode(wire)
        except Misfit as fault:
            raise ValueMappingError(fault.path, fault.reason) from fault.__cause__
        except RecursionError:
            raise ValueMappingError("$", _TOO_DEEP) from None

    def _decode_walking(self, raw: str | bytes) -> T:
        try:
            return cast("T", self._load(raw))
        except Misfit as fault:
            raise ValueMappingError(fault.path, fault.reason) from fault.__cause__
        except RecursionError:
            raise ValueMappingError("$", _TOO_DEEP) from None

    def _load(self, raw: str | bytes) -> Any:
        try:
            wire = _decode(raw)
        except (msgspec.MsgspecError, ValueError):
            return self._load_python(raw)
        return self._load_wire(wire)

    def _load_python(self, raw: str | bytes) -> Any:
        """Read what msgspec refuses as a whole, so that the walk can name the path of the number or text at fault."""
        constants: list[str] = []

        def keep_constant(word: str) -> float:
            constants.append(word)
            return float(word)

        try:
            text = raw if isinstance(raw, str) else raw.decode()
            wire = json.loads(text, parse_int=_parse_int, parse_constant=keep_constant)
        except ValueError:
            raise Misfit("not valid JSON") from None
        value = self._load_wire(wire)
        if constants:
            raise Misfit(f"not valid JSON: {constants[0]}")
        return value

    def _load_wire(self, wire: Wire) -> Any:
        if self._plan.recursive:
            refuse_too_deep(wire)
        return self._plan.load(wire)

    def _verify(self, raw: bytes) -> None:
        """User code runs when this type is read: make sure that it leaves the value as it was."""
        value = self.decode(raw)
        again = self._encode_native(value) or self._encode_walking(value)
        if _decode(again) != _decode(raw):
            raise ValueMappingError("$", f"{self.type_name} does not come back equal: its own code changes it")


def _native(plan: Plan, declared: Any) -> tuple[Any, Any]:
    """The quick check and msgspec's decoder, where msgspec stores the type exactly as the plan does."""
    if plan.check is None:
        return None, None
    try:
        return plan.check, msgspec.json.Decoder(declared)
    except TypeError:
        return None, None


def _parse_int(digits: str) -> int:
    return int(digits) if len(digits.lstrip("-")) <= MAX_INT_DIGITS else 10**MAX_INT_DIGITS


_codecs: dict[Any, Codec[Any]] = {}


def codec_for(declared: Any) -> Codec[Any]:
    """The codec of a declared type; FlowDefinitionError if the type is not supported."""
    try:
        codec = _codecs.get(declared)
    except TypeError:
        return Codec(Compiler().plan(declared), declared)
    if codec is None:
        canonical = type(None) if declared is None else declared
        codec = _codecs.setdefault(canonical, Codec(Compiler().plan(canonical), canonical))
        _codecs[declared] = codec
    return codec


_RUNTIME: Codec[Any] = Codec(RUNTIME_PLAN, object)


def codec_for_value(value: object) -> Codec[Any]:
    """The codec that stores a value by the type it has; of containers it reads back plain JSON."""
    if type(value) in (list, tuple, set, frozenset, dict):
        return _RUNTIME
    try:
        return codec_for(type(value))
    except FlowDefinitionError as error:
        raise ValueMappingError("$", str(error)) from None


def encode_output(value: object, *, key: str = "", limit: int = DEFAULT_MAX_VALUE_BYTES) -> str:
    """The JSON text of a value by the type it has; `codec_for(T).decode` reads it back for a fitting T."""
    return codec_for_value(value).encode(value, key=key, limit=limit)
