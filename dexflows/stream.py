"""Streams: progress messages of one run, kept on a best-effort basis beside the Flow's state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dexflows.attribute import check_name
from dexflows.codec import Codec, codec_for
from dexflows.errors import FlowDefinitionError, InvalidRequestError

if TYPE_CHECKING:
    from dexflows.context import Context

__all__ = ["Stream", "StreamMessage", "StreamPage", "StreamTextWriter"]

T = TypeVar("T")
DEFAULT_CAPACITY_BYTES = 256 * 1024
MIN_CAPACITY_BYTES, MAX_CAPACITY_BYTES = 1024, 64 * 1024 * 1024
FLUSH_BYTES = 4096
FLUSH_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class StreamMessage(Generic[T]):
    """A message of a Stream; `id` grows in the order of writing, `source` names the Step execution or caller."""

    id: str
    source: str
    value: T
    at: datetime


@dataclass(frozen=True, kw_only=True)
class StreamPage(Generic[T]):
    """Some messages, and the opaque token with which reading goes on; '' at the end of a listing."""

    messages: tuple[StreamMessage[T], ...]
    next_page_token: str


class Stream(Generic[T]):
    """Best-effort progress messages of a run, outside its state: `progress = Stream("progress", str)`.

    Messages may be lost. The oldest are dropped so that what is kept takes at most `capacity_bytes`: the JSON of
    each message, its source and 64 bytes. Recognised by identity, never by name.
    """

    def __init__(self, name: str, type: type[T], *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.name = check_name("a Stream name", name)
        self.type = type
        self.capacity_bytes = _checked_capacity(name, capacity_bytes)

    @cached_property
    def codec(self) -> Codec[T]:
        """The codec of one message; FlowDefinitionError if the declared type is not supported."""
        return codec_for(self.type)

    def write(self, context: Context, value: T) -> None:
        """Write a message at once, in a Step: it stays when the attempt fails, and a retry writes its own again.

        Never fails for want of Redis: the message is lost then, and an absent Redis holds the Step up for less than a
        second, once in some seconds. Raises ValueMappingError for a value of another type or over the capacity.
        """
        context.open_stream(self)(value)

    def text_writer(self: Stream[str], context: Context) -> StreamTextWriter:
        """A writer that joins pieces of text, such as a model's tokens, to fewer messages.

        with progress.text_writer(context) as writer:
            for token in answer:
                writer.write(token)
        """
        if self.type is not str:
            raise InvalidRequestError(f"{self!r} holds {self.codec.type_name}: only a Stream of str has a text writer")
        return StreamTextWriter(self, context.open_stream(self))

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"


class StreamTextWriter:
    """Joins text until it takes 4 KiB or is a quarter of a second old, and writes what is left at the end.

    Made by `Stream.text_writer`, for a `with` block.
    """

    def __init__(self, stream: Stream[str], send: Callable[[Any], None]) -> None:
        self._stream = stream
        self._send = send
        self._limit = min(FLUSH_BYTES, stream.capacity_bytes // 4)
        self._pieces: list[str] = []
        self._size = 0
        self._timer: threading.Timer | None = None
        # Reentrant, so that a handler interrupted while it holds the lock can still leave its `with` block.
        self._lock = threading.RLock()

    def write(self, text: str) -> None:
        """Add a piece. Raises ValueMappingError for what is no text that JSON can hold."""
        encoded = self._stream.codec.encode(text, key=self._stream.name, limit=self._stream.capacity_bytes)
        size = len(encoded.encode()) - len('""')
        with self._lock:
            if self._size + size > self._limit:
                self.flush()
            self._pieces.append(text)
            self._size += size
            if self._size >= self._limit:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(FLUSH_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write now what has been collected."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            text = "".join(self._pieces)
            self._pieces, self._size = [], 0
            if text:
                self._send(text)

    def __enter__(self) -> StreamTextWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()


def _checked_capacity(name: str, capacity: object) -> int:
    if type(capacity) is not int or not MIN_CAPACITY_BYTES <= capacity <= MAX_CAPACITY_BYTES:
        raise FlowDefinitionError(
            f"Stream {name!r}: capacity_bytes must be a whole number of bytes from {MIN_CAPACITY_BYTES} to "
            f"{MAX_CAPACITY_BYTES}, not {capacity!r}"
        )
    return capacity
