"""Every error that dexflows raises.

DexflowsError
├── FlowDefinitionError              a Flow is declared wrongly
├── InvalidRequestError              the caller's input is not acceptable
│   ├── ValueMappingError            a value does not fit its declared type or JSON
│   │   └── ValueTooLargeError       a value is over the size limit
│   └── InvalidSearchQueryError      a search query cannot be read
├── FlowNotFoundError                no such run
├── FlowNotActiveOrNotFoundError     no such run that is still running
├── FlowAlreadyStartedError          the Flow ID is taken
├── FlowClosingError                 the run is about to close
├── RpcLockConflictError             an RPC could not take its locks at once
├── RpcTimeoutError                  an RPC ran out of time
├── LongPollTimeoutError             a wait ended before what it waited for
├── WorkerInvocationError            an RPC handler raised
├── UnavailableError                 the database, or the Redis of the Streams, cannot be reached
├── AttributeMapNotLoadedError       a handler read a map instance it did not load
├── ChannelNotLoadedError            a handler looked at a Channel it did not load
├── ChannelMessageNotFoundError      a message to be deleted is not queued
├── UndeclaredAttributeError         a handler used a definition outside its Flow's schema
└── InvalidStepResultError           a handler returned something that is no result
"""

from __future__ import annotations

__all__ = [
    "AttributeMapNotLoadedError",
    "ChannelMessageNotFoundError",
    "ChannelNotLoadedError",
    "DexflowsError",
    "FlowAlreadyStartedError",
    "FlowClosingError",
    "FlowDefinitionError",
    "FlowNotActiveOrNotFoundError",
    "FlowNotFoundError",
    "InvalidRequestError",
    "InvalidSearchQueryError",
    "InvalidStepResultError",
    "LongPollTimeoutError",
    "RPCLockConflict",
    "RpcLockConflictError",
    "RpcTimeoutError",
    "UnavailableError",
    "UndeclaredAttributeError",
    "ValueMappingError",
    "ValueTooLargeError",
    "WorkerInvocationError",
]


class DexflowsError(Exception):
    """The root of every error that dexflows raises on purpose."""


class FlowDefinitionError(DexflowsError):
    """A Flow, Step, RPC, Attribute or value type is declared wrongly; raised at start-up."""


class InvalidRequestError(DexflowsError):
    """The caller's input is not acceptable, whatever the state of the Flow."""


class ValueMappingError(InvalidRequestError):
    """A value does not fit its declared type, or cannot be stored as JSON; `path` says where."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[ValueMappingError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class ValueTooLargeError(ValueMappingError):
    """A value takes more bytes as JSON than the limit allows."""

    def __init__(self, key: str, size: int, limit: int) -> None:
        named = f" of {key}" if key else ""
        super().__init__("$", f"the value{named} takes {size} bytes, more than the limit of {limit}")
        self.key = key
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[type[ValueMappingError], tuple[str, int, int]]:  # type: ignore[override]
        return type(self), (self.key, self.size, self.limit)


class InvalidSearchQueryError(InvalidRequestError):
    """A search query has wrong syntax, an unknown key or a wrong type; `column` counts from 1."""

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message, column)
        self.message = message
        self.column = column

    def __str__(self) -> str:
        return self.message if self.column is None else f"{self.message} (column {self.column})"


class FlowNotFoundError(DexflowsError):
    """No run has this Flow ID or run ID."""


class FlowNotActiveOrNotFoundError(DexflowsError):
    """The act needs a running run, and there is none with this Flow ID or run ID."""


class FlowAlreadyStartedError(DexflowsError):
    """The Flow ID has a run already, and the reuse policy does not allow another."""

    def __init__(self, flow_id: str, run_id: str) -> None:
        super().__init__(flow_id, run_id)
        self.flow_id = flow_id
        self.run_id = run_id

    def __str__(self) -> str:
        return f"Flow {self.flow_id!r} is already started as run {self.run_id}"


class FlowClosingError(DexflowsError):
    """The run has its result and is about to close, so it takes no more updates."""


class RpcLockConflictError(DexflowsError):
    """An RPC could not take all its locks at once; its handler did not run."""

    def __init__(self, locks: tuple[str, ...] = ()) -> None:
        super().__init__(locks)
        self.locks = tuple(locks)

    def __str__(self) -> str:
        return f"locked by another: {', '.join(self.locks)}"


RPCLockConflict = RpcLockConflictError


class RpcTimeoutError(DexflowsError):
    """An RPC ran out of time; its locks are free and nothing was written."""


class LongPollTimeoutError(DexflowsError):
    """What was waited for did not happen within the time given."""


class WorkerInvocationError(DexflowsError):
    """An RPC handler raised; nothing was written."""

    def __init__(self, error_type: str, error_detail: str) -> None:
        super().__init__(error_type, error_detail)
        self.error_type = error_type
        self.error_detail = error_detail

    def __str__(self) -> str:
        return f"{self.error_type}: {self.error_detail}"


class UnavailableError(DexflowsError):
    """The database, its pool or the Redis of the Streams cannot be reached now; trying again later may succeed."""


class AttributeMapNotLoadedError(DexflowsError):
    """A handler read a map instance, or a whole map, that its options did not load."""


class ChannelNotLoadedError(DexflowsError):
    """A handler looked at the messages of a Channel, or at a whole ChannelMap, that its options did not load."""


class ChannelMessageNotFoundError(DexflowsError):
    """A message that was to be deleted is not in its Channel, or not any more; nothing was written."""


class UndeclaredAttributeError(DexflowsError):
    """A handler used an Attribute, Channel or Stream object that is not in its Flow's persistence schema."""


class InvalidStepResultError(DexflowsError):
    """A handler returned a value that is no valid wait, decision or RPC result."""
