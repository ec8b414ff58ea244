"""Writing and reading the Streams of runs from outside."""

import base64
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from dexflows import selectors
from dexflows.engine import rpc, streams
from dexflows.errors import InvalidRequestError
from dexflows.long_polls import Looks, give_connection_back
from dexflows.registry import registry
from dexflows.stream import Stream, StreamMessage, StreamPage

T = TypeVar("T")
MAX_SOURCE_LENGTH = 255
MAX_PAGE_SIZE = 1000
MAX_WAIT_SECONDS = 60.0
FIRST_POLL, LAST_POLL = 0.01, 0.25


class _Place(msgspec.Struct, array_like=True, frozen=True):
    """What a token holds: a place in one Stream of one run, and which way reading goes from it."""

    way: Literal["after", "before"]
    run_id: UUID
    stream: str
    entry_id: str = ""
    """'' is where a reading in this way begins."""

    def to_token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()


_places = msgspec.json.Decoder(_Place)


def write(flow_id: str, run_id: UUID | None, stream: Stream[T], source: str, value: T) -> StreamMessage[T] | None:
    """Write a message; None when it is lost."""
    if not isinstance(source, str) or not 1 <= len(source) <= MAX_SOURCE_LENGTH or not source.isprintable():
        raise InvalidRequestError(f"source must be a text of 1 to {MAX_SOURCE_LENGTH} printable characters")
    run = _run_of(flow_id, run_id, stream)
    raw = streams.encoded(stream, value)
    entry_id = streams.append(run, stream, source, raw)
    return streams.decoded(stream, [streams.Entry(entry_id, source, raw)])[0] if entry_id else None


def read(
    flow_id: str, run_id: UUID | None, stream: Stream[T], token: str, limit: int, wait: float
) -> "Looks[StreamPage[T]]":
    """Look until there are messages or the time is over."""
    _check_size("limit", limit)
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= MAX_WAIT_SECONDS:
        raise InvalidRequestError(f"wait must be 0 to {MAX_WAIT_SECONDS:g} seconds, not {str(wait)[:80]}")
    place = _place("after", flow_id, run_id, stream, token)
    deadline, pause = time.monotonic() + wait, FIRST_POLL
    while True:
        entries = streams.after(place.run_id, place.stream, place.entry_id, limit)
        left = deadline - time.monotonic()
        if entries or left <= 0:
            break
        if pause == FIRST_POLL:
            give_connection_back()
        yield Future(), min(pause, left)
        pause = min(pause * 1.5, LAST_POLL)
    if entries:
        place = msgspec.structs.replace(place, entry_id=entries[-1].id)
    return StreamPage(messages=streams.decoded(stream, entries), next_page_token=place.to_token())


def list_newest(
    flow_id: str, run_id: UUID | None, stream: Stream[T], page_size: int, next_page_token: str
) -> StreamPage[T]:
    """A page of messages, newest first."""
    _check_size("page_size", page_size)
    place = _place("before", flow_id, run_id, stream, next_page_token)
    entries = streams.before(place.run_id, place.stream, place.entry_id, page_size + 1)
    page, rest = entries[:page_size], entries[page_size:]
    token = msgspec.structs.replace(place, entry_id=page[-1].id).to_token() if rest else ""
    return StreamPage(messages=streams.decoded(stream, page), next_page_token=token)


def _place(
    way: Literal["after", "before"], flow_id: str, run_id: UUID | None, stream: Stream[Any], token: str
) -> _Place:
    """Where to read. A token stays with its run, also when the Flow ID has a newer one by now."""
    if not token:
        return _Place(way, _run_of(flow_id, run_id, stream), stream.name)
    place = _read_token(token)
    if place is None or place.way != way:
        raise InvalidRequestError("the token is none that this method returned")
    run = _run_of(flow_id, place.run_id, stream)
    if place.stream != stream.name or run_id not in (None, run):
        raise InvalidRequestError("the token belongs to another Stream or run")
    return place


def _read_token(token: object) -> _Place | None:
    try:
        text = str(token).encode("ascii")
        place = _places.decode(base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, msgspec.MsgspecError):
        return None
    return place if not place.entry_id or streams.is_entry_id(place.entry_id) else None


def _run_of(flow_id: str, run_id: UUID | None, stream: Stream[Any]) -> UUID:
    if not isinstance(stream, Stream):
        raise InvalidRequestError(f"{stream!r} is no Stream")
    run = rpc.restarting(partial(selectors.find_run, flow_id, run_id))
    definition = registry.get(run.flow_type)
    if definition is None or definition.streams.get(stream.name) is not stream:
        raise InvalidRequestError(f"{stream!r} is not in the schema of Flow {run.flow_type}")
    return run.run_id


def _check_size(what: str, size: object) -> None:
    if type(size) is not int or not 1 <= size <= MAX_PAGE_SIZE:
        raise InvalidRequestError(f"{what} must be a whole number from 1 to {MAX_PAGE_SIZE}, not {str(size)[:80]}")
