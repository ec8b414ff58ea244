"""dexflows: durable Flows of typed Steps and RPCs on PostgreSQL, for Django.

This package exports the language in which Flows are written. It needs no Django settings; `Client` and
`AsyncClient` are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dexflows.attribute import (
    Attribute,
    AttributeIndex,
    AttributeLock,
    AttributeMap,
    AttributeMapInstance,
    IndexType,
)
from dexflows.channel import Channel, ChannelMap, ChannelMapInstance, ChannelMessage
from dexflows.context import Context, RecoveryError
from dexflows.decision import (
    StepDecision,
    StepMovement,
    dead_end,
    force_complete,
    force_complete_if_channels_empty,
    force_fail,
    go_to,
    go_to_many,
    graceful_complete,
)
from dexflows.errors import (
    AttributeMapNotLoadedError,
    ChannelMessageNotFoundError,
    ChannelNotLoadedError,
    DexflowsError,
    FlowAlreadyStartedError,
    FlowClosingError,
    FlowDefinitionError,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    InvalidRequestError,
    InvalidSearchQueryError,
    InvalidStepResultError,
    LongPollTimeoutError,
    RPCLockConflict,
    RpcLockConflictError,
    RpcTimeoutError,
    UnavailableError,
    UndeclaredAttributeError,
    ValueMappingError,
    ValueTooLargeError,
    WorkerInvocationError,
)
from dexflows.flow import Flow, StepList, rpc
from dexflows.flow_result import Completion, FlowResult
from dexflows.options import FlowConfig, RPCInvokeOptions, StartFlowOptions, StepOptions, StopFlowOptions
from dexflows.registry import register
from dexflows.retry import RetryAfter, RetryPolicy, retry_after
from dexflows.rpc_result import RPCResult
from dexflows.schema import PersistenceSchema
from dexflows.states import (
    FlowTimeoutPolicy,
    IdReusePolicy,
    RunStatus,
    StepDurability,
    StepMethod,
    StepState,
    StopType,
    SubFlowReusePolicy,
    WaitForFailure,
)
from dexflows.step import Step
from dexflows.stream import Stream, StreamMessage, StreamPage, StreamTextWriter
from dexflows.sub_flow import SubFlow, SubFlowOptions
from dexflows.targets import (
    AttributeMatch,
    StepExecutionId,
    TimerId,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
)
from dexflows.wait import ConditionCombination, Timer, Wait

if TYPE_CHECKING:
    from dexflows.async_client import AsyncClient
    from dexflows.client import Client

__all__ = [
    "AsyncClient",
    "Attribute",
    "AttributeIndex",
    "AttributeLock",
    "AttributeMap",
    "AttributeMapInstance",
    "AttributeMapNotLoadedError",
    "AttributeMatch",
    "Channel",
    "ChannelMap",
    "ChannelMapInstance",
    "ChannelMessage",
    "ChannelMessageNotFoundError",
    "ChannelNotLoadedError",
    "Client",
    "Completion",
    "ConditionCombination",
    "Context",
    "DexflowsError",
    "Flow",
    "FlowAlreadyStartedError",
    "FlowClosingError",
    "FlowConfig",
    "FlowDefinitionError",
    "FlowNotActiveOrNotFoundError",
    "FlowNotFoundError",
    "FlowResult",
    "FlowTimeoutPolicy",
    "IdReusePolicy",
    "IndexType",
    "InvalidRequestError",
    "InvalidSearchQueryError",
    "InvalidStepResultError",
    "LongPollTimeoutError",
    "PersistenceSchema",
    "RPCInvokeOptions",
    "RPCLockConflict",
    "RPCResult",
    "RecoveryError",
    "RetryAfter",
    "RetryPolicy",
    "RpcLockConflictError",
    "RpcTimeoutError",
    "RunStatus",
    "StartFlowOptions",
    "Step",
    "StepDecision",
    "StepDurability",
    "StepExecutionId",
    "StepList",
    "StepMethod",
    "StepMovement",
    "StepOptions",
    "StepState",
    "StopFlowOptions",
    "StopType",
    "Stream",
    "StreamMessage",
    "StreamPage",
    "StreamTextWriter",
    "SubFlow",
    "SubFlowOptions",
    "SubFlowReusePolicy",
    "Timer",
    "TimerId",
    "UnavailableError",
    "UndeclaredAttributeError",
    "ValueMappingError",
    "ValueTooLargeError",
    "Wait",
    "WaitForAttributeOptions",
    "WaitForFailure",
    "WaitForStepCompletionOptions",
    "WorkerInvocationError",
    "dead_end",
    "force_complete",
    "force_complete_if_channels_empty",
    "force_fail",
    "go_to",
    "go_to_many",
    "graceful_complete",
    "register",
    "retry_after",
    "rpc",
]

_LAZY = {"AsyncClient": "dexflows.async_client", "Client": "dexflows.client"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
