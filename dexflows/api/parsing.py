"""Reads a JSON body from strangers: bounded in size, depth and digits, and free of NaN and infinity.

``json.loads`` would take ``NaN`` and turn ``1e400`` into infinity. Where an object names a key twice, the last one
wins, as in PostgreSQL's ``jsonb``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, Final

import msgspec
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser

MAX_DEPTH: Final = 100


class StrictJSONParser(BaseParser):
    """The parser of every view: ``application/json`` in UTF-8, and nothing else."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The decoded body; raises ``ParseError``, ``RequestDataTooBig`` or ``UnsupportedMediaType``."""
        _refuse_other_charsets(media_type or "")
        return parse_json(_read_bounded(stream))


def parse_json(body: bytes) -> Any:
    """``body`` as Python values; raises ``ParseError`` saying what is wrong with it."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise ParseError(f"JSON is nested deeper than {MAX_DEPTH} levels.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ParseError(f"Malformed JSON: {error}") from None
    # Only a body with that many brackets can be too deep: the usual one is not walked.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _refuse_deep(value)
    return value


def _read_bounded(stream: IO[Any]) -> bytes:
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is None:
        return bytes(stream.read())
    body = bytes(stream.read(limit + 1))
    if len(body) > limit:
        raise RequestDataTooBig(f"The body is longer than {limit} bytes.")
    return body


def _refuse_other_charsets(media_type: str) -> None:
    _, _, parameters = media_type.partition("charset=")
    charset = parameters.partition(";")[0].strip().strip('"').lower()
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(media_type, "JSON must be sent in UTF-8.")


def _refuse_deep(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise ParseError(f"JSON is nested deeper than {MAX_DEPTH} levels.")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
