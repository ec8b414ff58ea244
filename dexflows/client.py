"""Starting, calling, reading and stopping Flows.

`Client()` and `AsyncClient()` are cheap to make and hold nothing. Inside a `transaction.atomic()` block of the
engine's database, what a client writes is part of that block.
"""

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from dexflows import selectors, streaming
from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap, AttributeMapInstance
from dexflows.buffer import AttributeBuffer, ChannelBuffer
from dexflows.channel import Channel, ChannelDefinition
from dexflows.conf import conf
from dexflows.engine import closing, messages, rpc, starting
from dexflows.engine.keys import LoadSet, LockSet
from dexflows.engine.outcomes import Effects
from dexflows.errors import FlowAlreadyStartedError, InvalidRequestError, LongPollTimeoutError
from dexflows.flow import Flow
from dexflows.flow_result import FlowResult
from dexflows.models import Run
from dexflows.options import RPCInvokeOptions, StartFlowOptions, StopFlowOptions
from dexflows.registry import FlowDefinition, registry
from dexflows.selectors import FlowInfo
from dexflows.stream import Stream, StreamMessage, StreamPage
from dexflows.targets import StepExecutionId, TimerId

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Looks: TypeAlias = Generator[float, None, R]
"""Yields the seconds until the next look, and returns the result."""

MAX_ID_LENGTH = 255
FORBIDDEN_IN_ID = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")
FIRST_POLL, LAST_POLL = 0.002, 0.5


def _next_look(looks: "Looks[R]") -> tuple[float, None] | tuple[None, R]:
    """Look once: the seconds until the next look, or the result."""
    try:
        return next(looks), None
    except StopIteration as end:
        return None, end.value


def _looking(method: Callable[P, "Looks[R]"]) -> Callable[P, R]:
    """Sleep between the looks of a method that waits; `AsyncClient` awaits instead, and lets other calls go on."""

    @wraps(method)
    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        looks = method(*args, **kwargs)
        while True:
            pause, result = _next_look(looks)
            if pause is None:
                return cast("R", result)
            time.sleep(pause)

    return wait


class Client:
    """The synchronous client. Every method may raise UnavailableError while the database is away."""

    def start_flow(
        self,
        flow: Flow[T] | type[Flow[T]],
        flow_id: str,
        input: T | None = None,
        options: StartFlowOptions | None = None,
    ) -> str:
        """Start a run and return its run ID.

        Raises FlowAlreadyStartedError as the ID reuse policy says, ValueMappingError for an input or initial
        Attribute of the wrong type, InvalidRequestError for a bad Flow ID or an option without effect so far.
        """
        options = options or StartFlowOptions()
        _check_available(options)
        definition = registry.definition_of(flow)
        writes = _writes(definition, [(a.definition, a.instance, a.value) for a in options.initial_attributes])
        _check_id("Flow ID", flow_id)
        if options.request_id is not None:
            _check_id("request ID", options.request_id)
        started = rpc.restarting(
            lambda: starting.start(
                definition,
                flow_id,
                input,
                policy=options.id_reuse_policy,
                request_id=options.request_id,
                config=options.config_override.to_json(),
                writes={key: value for key, value in writes.items() if value is not None},
            )
        )
        same_request = options.request_id is None or options.request_id == started.request_id
        if not started.started and not (options.ignore_already_started and same_request):
            raise FlowAlreadyStartedError(flow_id, str(started.run_id))
        return str(started.run_id)

    def invoke_rpc(
        self,
        method: Callable[..., Any],
        flow_id: str,
        input: object = None,
        *,
        run_id: str | None = None,
        options: RPCInvokeOptions | None = None,
    ) -> Any:
        """Call an RPC of a registered Flow, named by its bound method, and return its output.

        Raises RpcLockConflictError at once when a lock is taken, FlowNotActiveOrNotFoundError,
        WorkerInvocationError when the handler raises, RpcTimeoutError; nothing has happened then.
        """
        definition, rpc_definition = registry.rpc_of(method)
        _check_id("Flow ID", flow_id)
        if not rpc_definition.has_input and input is not None:
            raise InvalidRequestError(f"RPC {rpc_definition.name} takes no input")
        codec = rpc_definition.input_codec
        encoded = codec.encode(input, key="input", limit=conf().max_value_bytes) if codec else "null"
        call = rpc.Invocation.of(
            definition, rpc_definition, flow_id, _run_id(run_id), encoded, options or RPCInvokeOptions()
        )
        return rpc_definition.output_codec.decode(rpc.invoke(call))

    def describe_flow(self, flow_id: str, *, run_id: str | None = None) -> FlowInfo:
        """The latest (or given) run of a Flow ID. Raises FlowNotFoundError."""
        _check_id("Flow ID", flow_id)
        return rpc.restarting(lambda: selectors.describe(selectors.find_run(flow_id, _run_id(run_id))))

    @_looking
    def wait_for_flow(
        self, flow_id: str, timeout: float | None = None, *, run_id: str | None = None
    ) -> "Looks[FlowResult]":
        """Wait until the run has closed and return its result; `timeout` is in seconds, None waits without end.

        Raises FlowNotFoundError, and LongPollTimeoutError when the run is still running at the end.
        """
        _check_id("Flow ID", flow_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, given = FIRST_POLL, _run_id(run_id)
        while True:
            run, result = rpc.restarting(partial(_run_and_result, flow_id, given))
            if result.is_terminal:
                return result
            given = run.run_id
            left = LAST_POLL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise LongPollTimeoutError(f"Flow {flow_id!r} is still running after {timeout:g} s")
            yield min(pause, left)
            pause = min(pause * 1.5, LAST_POLL)

    def stop_flow(self, flow_id: str, options: StopFlowOptions | None = None, *, run_id: str | None = None) -> None:
        """Close the running run at once. Raises FlowNotActiveOrNotFoundError when there is none."""
        options = options or StopFlowOptions()
        _check_id("Flow ID", flow_id)
        given = _run_id(run_id)
        rpc.restarting(lambda: closing.stop(flow_id, given, options.type, options.reason))

    def publish(self, flow_id: str, channel: ChannelDefinition, *values: Any, run_id: str | None = None) -> list[str]:
        """Publish messages to a Channel in this order and return their IDs; of a ChannelMap, the instance comes first.

        Raises ValueMappingError for a message of the wrong type, FlowNotActiveOrNotFoundError unless the run is
        running.
        """
        _check_id("Flow ID", flow_id)
        given, batch = _run_id(run_id), _batch(channel, values)
        return rpc.restarting(lambda: messages.send(flow_id, given, batch)) if batch.messages else []

    def skip_timer(
        self, flow_id: str, step_execution_id: StepExecutionId, timer_id: TimerId, *, run_id: str | None = None
    ) -> None:
        """Let a Timer of a Step's wait fire now; it is remembered for a Step that does not wait yet.

        Nothing happens when that wait is over. Raises FlowNotActiveOrNotFoundError unless the run is running, and
        InvalidRequestError when the wait has no such Timer.
        """
        _check_id("Flow ID", flow_id)
        given = _run_id(run_id)
        rpc.restarting(lambda: messages.skip_timer(flow_id, given, step_execution_id, timer_id))

    def get_attribute(
        self, flow_id: str, attribute: AttributeDefinition, instance: str | None = None, *, run_id: str | None = None
    ) -> Any:
        """The committed value of an Attribute or of one map instance; the default where there is none."""
        return self.get_attributes(flow_id, _selector(attribute, instance), run_id=run_id)[0]

    def get_attributes(self, flow_id: str, *selected: selectors.Selector, run_id: str | None = None) -> list[Any]:
        """The committed values of `attribute` and `attribute_map.load(instance)` selectors, in order."""
        _check_id("Flow ID", flow_id)
        given = _run_id(run_id)

        def read() -> list[Any]:
            run = selectors.find_run(flow_id, given)
            _check_declared(registry.get(run.flow_type), selected)
            return selectors.attribute_values(run, selected)

        return rpc.restarting(read)

    def set_attribute(self, flow_id: str, attribute: AttributeDefinition, *instance_and_value: Any) -> None:
        """`set_attribute(flow_id, attribute, value)` or `set_attribute(flow_id, attribute_map, instance, value)`."""
        self.set_attributes(flow_id, (attribute, *instance_and_value))

    def set_attributes(self, flow_id: str, *writes: tuple[Any, ...], run_id: str | None = None) -> None:
        """Write `(attribute, value)` and `(attribute_map, instance, value)` in one transaction; None deletes.

        Is not held up by locks. Raises FlowNotActiveOrNotFoundError unless the run is running.
        """
        _check_id("Flow ID", flow_id)
        given, parts = _run_id(run_id), [_write(write) for write in writes]

        def write() -> None:
            with transaction.atomic(using=conf().database):
                opened = rpc.open_run(flow_id, given, True, LockSet(), LoadSet.of({}, (), ()))
                definition = registry.get(opened.flow_type)
                if definition is None:
                    raise InvalidRequestError(f"Flow type {opened.flow_type} is not known to the running code")
                rpc.store(opened, Effects(writes=_writes(definition, parts)))

        rpc.restarting(write)

    def write_stream(
        self, flow_id: str, stream: Stream[T], source: str, value: T, *, run_id: str | None = None
    ) -> StreamMessage[T] | None:
        """Write a message to a Stream, of a closed run too; None when Redis is away and it is lost.

        `source` names the writer to readers. Raises FlowNotFoundError, ValueMappingError, InvalidRequestError.
        """
        _check_id("Flow ID", flow_id)
        return streaming.write(flow_id, _run_id(run_id), stream, source, value)

    @_looking
    def read_stream(
        self,
        flow_id: str,
        stream: Stream[T],
        token: str = "",
        limit: int = 100,
        wait: float = 0.0,
        *,
        run_id: str | None = None,
    ) -> "Looks[StreamPage[T]]":
        """The oldest messages, or those after the page whose `next_page_token` is given; the token stays with its run.

        Where there is none yet, waits up to `wait` seconds (at most 60) and gives the database connection back while it
        does. A reader that was too slow goes on with the oldest message there is. Raises FlowNotFoundError, and
        UnavailableError while Redis is away.
        """
        _check_id("Flow ID", flow_id)
        return (yield from streaming.read(flow_id, _run_id(run_id), stream, token, limit, wait))

    def list_stream_messages(
        self,
        flow_id: str,
        stream: Stream[T],
        page_size: int = 20,
        next_page_token: str = "",
        *,
        run_id: str | None = None,
    ) -> StreamPage[T]:
        """The newest messages first; the last page has no token. Raises as `read_stream` does."""
        _check_id("Flow ID", flow_id)
        return streaming.list_newest(flow_id, _run_id(run_id), stream, page_size, next_page_token)


def _check_available(options: StartFlowOptions) -> None:
    """Refuse what this version would take without doing it."""
    config = options.config_override
    given = {
        "retry_policy": options.retry_policy,
        "retention": config.retention,
        "history_limit": config.history_limit,
        "attribute_store_names": config.attribute_store_names,
    }
    if ineffective := [name for name, value in given.items() if value is not None]:
        raise InvalidRequestError(f"not available in this version: {', '.join(ineffective)}")


def _check_id(what: str, value: object) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidRequestError(f"{what} must be a text of 1 to {MAX_ID_LENGTH} characters, not {str(value)[:80]!r}")
    if FORBIDDEN_IN_ID.search(value):
        raise InvalidRequestError(f"{what} must not contain '/', control characters or lone surrogates: {value!r}")


def _run_id(value: str | None) -> UUID | None:
    try:
        return None if value is None else UUID(str(value))
    except ValueError:
        raise InvalidRequestError(f"run ID must be a UUID, not {str(value)[:80]!r}") from None


def _run_and_result(flow_id: str, run_id: UUID | None) -> tuple[Run, FlowResult]:
    run = selectors.find_run(flow_id, run_id)
    return run, selectors.result_of(run)


def _selector(attribute: AttributeDefinition, instance: str | None) -> selectors.Selector:
    if isinstance(attribute, AttributeMap):
        if instance is None:
            raise InvalidRequestError(f"{attribute!r} needs an instance")
        return attribute.load(instance)
    if instance is not None:
        raise InvalidRequestError(f"{attribute!r} has no instances")
    return attribute


def _check_declared(definition: FlowDefinition | None, selected: tuple[selectors.Selector, ...]) -> None:
    for each in selected:
        named = each.definition if isinstance(each, AttributeMapInstance) else each
        if definition is not None and definition.attributes.get(named.name) is not named:
            raise InvalidRequestError(f"{named!r} is not in the schema of Flow {definition.flow_type}")


def _write(write: tuple[Any, ...]) -> tuple[AttributeDefinition, str, object]:
    attribute = write[0] if write else None
    if isinstance(attribute, Attribute) and len(write) == 2:
        return attribute, "", write[1]
    if isinstance(attribute, AttributeMap) and len(write) == 3:
        return attribute, attribute.load(write[1]).instance, write[2]
    raise InvalidRequestError("a write is (attribute, value) or (attribute_map, instance, value)")


def _writes(
    definition: FlowDefinition, parts: list[tuple[AttributeDefinition, str, object]]
) -> dict[tuple[str, str], str | None]:
    buffer = AttributeBuffer(schema=definition.attributes, max_value_bytes=conf().max_value_bytes)
    for attribute, instance, value in parts:
        if definition.attributes.get(attribute.name) is not attribute:
            raise InvalidRequestError(f"{attribute!r} is not in the schema of Flow {definition.flow_type}")
        buffer.set(attribute, value, instance)
    return buffer.writes


def _batch(channel: ChannelDefinition, values: tuple[Any, ...]) -> messages.Batch:
    """Encode messages through a Channel's own buffer, as a handler of a Flow that has it would."""
    flows = [each for each in registry.definitions() if each.channels.get(getattr(channel, "name", "")) is channel]
    if not flows:
        raise InvalidRequestError(f"{channel!r} is no Channel of a registered Flow")
    instance, published = ("", values) if isinstance(channel, Channel) else (values[0] if values else "", values[1:])
    buffer = ChannelBuffer(schema=flows[0].channels, max_value_bytes=conf().max_value_bytes)
    buffer.publish(channel, published, instance)
    return messages.Batch(flow_types=tuple(each.flow_type for each in flows), messages=tuple(buffer.published))


def _awaitable_looks(looking: Callable[..., "Looks[Any]"]) -> Any:
    async def wait(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        looks = looking(self._client, *args, **kwargs)
        while True:
            pause, result = await sync_to_async(_next_look)(looks)
            if pause is None:
                return result
            await asyncio.sleep(pause)

    wait.__name__, wait.__doc__ = looking.__name__, looking.__doc__
    return wait


def _awaitable(method: Callable[..., Any]) -> Any:
    async def call(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(method)(self._client, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncClient:
    """The client with awaitable methods of the same names, arguments and errors; made from `Client`."""

    def __init__(self) -> None:
        self._client = Client()


for _name, _method in list(vars(Client).items()):
    if inspect.isgeneratorfunction(inspect.unwrap(_method)):
        setattr(AsyncClient, _name, _awaitable_looks(inspect.unwrap(_method)))
    elif not _name.startswith("_"):
        setattr(AsyncClient, _name, _awaitable(_method))
