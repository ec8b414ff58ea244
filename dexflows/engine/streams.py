"""Where the messages of Streams are kept: one Redis stream for each run and Stream.

Its key is `PREFIXdexflows:stream:{RUN-ID}:NAME`; the braces are part of it, so that a run's Streams share a hash slot.
It expires `STREAMS_EXPIRE_SECONDS` after the last message. An entry holds the source `s`, the JSON value `v`, and in
`b` the bytes of all messages before it, dropped ones included. So what is kept can be counted from its two ends, and
there is no second key that could disagree.
"""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from dexflows.conf import conf
from dexflows.engine.keys import StepKey
from dexflows.engine.stream_server import Purpose, address, server
from dexflows.errors import UnavailableError, UndeclaredAttributeError, ValueMappingError
from dexflows.registry import FlowDefinition
from dexflows.stream import Stream, StreamMessage

logger = logging.getLogger(__name__)
T = TypeVar("T")

APPEND = """
-- Appends a message, then drops the oldest ones while all together are over the capacity; the new one always stays.
local function cost(source, value) return #source + #value + 64 end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local begin = newest and tonumber(newest[2][6]) + cost(newest[2][2], newest[2][4]) or 0
local id = redis.call('XADD', KEYS[1], '*', 's', ARGV[1], 'v', ARGV[2], 'b', string.format('%.0f', begin))
local floor = begin + cost(ARGV[1], ARGV[2]) - tonumber(ARGV[3])
local count = 1
repeat
    local dropped = {}
    for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '(' .. id, 'COUNT', count)) do
        if tonumber(entry[2][6]) >= floor then break end
        dropped[#dropped + 1] = entry[1]
    end
    if #dropped > 0 then redis.call('XDEL', KEYS[1], unpack(dropped)) end
    local more = #dropped == count
    count = math.min(count * 2, 1024)
until not more
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return id
"""
_ENTRY_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it is kept: its ID, who wrote it, and its JSON."""

    id: str
    source: str
    raw: str


def key_of(run_id: UUID, name: str) -> str:
    """The Redis key of a run's Stream."""
    return f"{address()[1]}dexflows:stream:{{{run_id}}}:{name}"


def is_entry_id(text: str) -> bool:
    """Whether Redis takes this as the ID of an entry, and as an end of a range that leaves it out."""
    return _ENTRY_ID.fullmatch(text) is not None


def open_for_step(flow: FlowDefinition, key: StepKey, stream: Stream[Any]) -> Callable[[Any], None]:
    """What writes the messages of one Step execution. Raises UndeclaredAttributeError for another Flow's Stream."""
    if flow.streams.get(stream.name) is not stream:
        raise UndeclaredAttributeError(f"{stream!r} is not in the persistence schema of this Flow")

    def write(value: Any) -> None:
        append(key.run_id, stream, key.step_execution_id, encoded(stream, value))

    return write


def encoded(stream: Stream[T], value: T) -> str:
    """The JSON text of a message. Raises ValueMappingError."""
    limit = min(stream.capacity_bytes, conf().max_value_bytes)
    return stream.codec.encode(value, key=f"message of Stream {stream.name}", limit=limit)


def append(run_id: UUID, stream: Stream[Any], source: str, raw: str) -> str | None:
    """Write a message and return its ID, or None when it is lost because Redis is away."""
    key, expire = key_of(run_id, stream.name), int(conf().streams_expire_seconds * 1000)
    try:
        return server(Purpose.WRITE).ask(
            lambda redis: str(redis.eval(APPEND, 1, key, source, raw, stream.capacity_bytes, expire))
        )
    except UnavailableError:
        return None


def after(run_id: UUID, name: str, entry_id: str, count: int) -> list[Entry]:
    """The oldest entries after this one, or of all for ''. Raises UnavailableError."""
    key, start = key_of(run_id, name), f"({entry_id}" if entry_id else "-"
    return _entries(server(Purpose.READ).ask(lambda redis: redis.xrange(key, start, "+", count)))


def before(run_id: UUID, name: str, entry_id: str, count: int) -> list[Entry]:
    """The newest entries before this one, or of all for '', newest first. Raises UnavailableError."""
    key, end = key_of(run_id, name), f"({entry_id}" if entry_id else "+"
    return _entries(server(Purpose.READ).ask(lambda redis: redis.xrevrange(key, end, "-", count)))


def _entries(found: Any) -> list[Entry]:
    return [Entry(entry_id, fields.get("s", ""), fields.get("v", "")) for entry_id, fields in found]


def decoded(stream: Stream[T], entries: Iterable[Entry]) -> tuple[StreamMessage[T], ...]:
    """The messages; without those that the declared type does not fit any more, which no reader could get past."""
    messages, misfits = [], 0
    for entry in entries:
        try:
            value = stream.codec.decode(entry.raw)
        except ValueMappingError:
            misfits += 1
            continue
        at = datetime.fromtimestamp(int(entry.id.partition("-")[0]) / 1000, UTC)
        messages.append(StreamMessage(id=entry.id, source=entry.source, value=value, at=at))
    if misfits:
        logger.warning("%r: %d messages do not fit its type and were left out", stream, misfits)
    return tuple(messages)
