"""Reads the annotations of handlers, which say how inputs and outputs are stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

from dexflows.codec import Codec, codec_for
from dexflows.context import Context
from dexflows.errors import FlowDefinitionError
from dexflows.rpc_result import RPCResult

__all__ = ["HandlerSignature", "codec_at", "generic_argument", "read_handler", "rpc_output_type"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class HandlerSignature:
    """The declared types of one handler `(self, context[, input]) -> returns`."""

    has_input: bool
    input_type: Any
    returns: Any


def read_handler(function: Callable[..., Any], where: str) -> HandlerSignature:
    """The signature of a method as defined on its class; `where` is what a refusal calls it."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(each.kind not in _POSITIONAL for each in parameters) or len(parameters) not in (1, 2):
        raise FlowDefinitionError(f"{where} must take (self, context) or (self, context, input)")
    hints = _hints(function, where)
    for name in (*(each.name for each in parameters), "return"):
        if name not in hints:
            raise FlowDefinitionError(f"{where}: the annotation of {name!r} is missing")
    if hints[parameters[0].name] is not Context:
        raise FlowDefinitionError(f"{where}: {parameters[0].name!r} must be annotated as Context")
    has_input = len(parameters) == 2
    input_type = hints[parameters[1].name] if has_input else NoneType
    return HandlerSignature(has_input=has_input, input_type=input_type, returns=hints["return"])


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:
        raise FlowDefinitionError(f"{where}: the annotations cannot be read: {error}") from error


def codec_at(declared: Any, where: str) -> Codec[Any]:
    """The codec of a declared type; a refusal names `where`."""
    try:
        return codec_for(declared)
    except FlowDefinitionError as error:
        raise FlowDefinitionError(f"{where}: {error}") from error


def rpc_output_type(returns: Any, where: str) -> Any:
    """T of a return annotation `RPCResult[T]`, None where it is None, and `T | None` where either may come."""
    if get_origin(returns) in (Union, UnionType):
        members = [each for each in get_args(returns) if each is not NoneType]
        if len(members) == 1:
            return Optional[rpc_output_type(members[0], where)]  # noqa: UP045 - made from a value
    if returns in (None, NoneType):
        return NoneType
    if get_origin(returns) is RPCResult:
        return get_args(returns)[0]
    raise FlowDefinitionError(f"{where} must return RPCResult[T] or None, not {returns!r}")


def generic_argument(cls: type, base: type) -> Any:
    """T where `cls` derives directly or further up from `base[T]`, else the sentinel `inspect.Parameter.empty`."""
    for ancestor in cls.__mro__:
        for declared in getattr(ancestor, "__orig_bases__", ()):
            argument = get_args(declared)[0] if get_origin(declared) is base else Any
            if argument is not Any and not isinstance(argument, TypeVar):
                return argument
    return inspect.Parameter.empty
