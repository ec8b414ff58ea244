"""Starting, calling, reading and stopping Flows.

`Client()` and `AsyncClient()` are cheap to make and hold nothing. Inside a `transaction.atomic()` block of the
engine's database, what a client writes is part of that block.
"""

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from dexflows import long_polls, selectors
from dexflows.attribute import Attribute, AttributeDefinition, AttributeMap, AttributeMapInstance
from dexflows.buffer import ChannelBuffer
from dexflows.channel import Channel, ChannelDefinition
from dexflows.conf import conf
from dexflows.engine import closing, configuring, messages, rpc, starting
from dexflows.engine.keys import LoadSet, LockSet
from dexflows.engine.outcomes import Effects
from dexflows.errors import FlowAlreadyStartedError, InvalidRequestError
from dexflows.flow import Flow
from dexflows.flow_result import FlowResult
from dexflows.options import FlowConfig, RPCInvokeOptions, StartFlowOptions, StopFlowOptions
from dexflows.registry import FlowDefinition, registry
from dexflows.selectors import FlowInfo
from dexflows.targets import (
    StepExecutionId,
    TimerId,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
)

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")
MAX_ID_LENGTH = 255
MAX_SUB_FLOW_ID, MAX_SUB_FLOW_BYTES = 1024, 2000
"""Of the Flow ID that a SubFlow has from its parent's; `sql/start_sub_flow.sql` keeps to the same."""
FORBIDDEN_IN_ID = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


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
        payload = starting.start_payload(registry.definition_of(flow), input, options)
        _check_id("Flow ID", flow_id)
        if options.request_id is not None:
            _check_id("request ID", options.request_id)
        started = rpc.restarting(lambda: starting.start(flow_id, payload, options))
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

    @long_polls.blocking
    def wait_for_flow(
        self, flow_id: str, timeout: float | timedelta | None = None, *, run_id: str | None = None
    ) -> "long_polls.Looks[FlowResult]":
        """Wait until the run has closed and return its result; a `timeout` of None waits without end, 0 looks once.

        Without `run_id` it is the latest run, and where that fails and is retried, the run that retries it. Raises
        FlowNotFoundError, and LongPollTimeoutError when the run is still running at the end.
        """
        _check_id("Flow ID", flow_id)
        limit = long_polls.TimeLimit(timeout)
        return (yield from long_polls.flow_result(flow_id, _run_id(run_id), limit))

    @long_polls.blocking
    def wait_for_step_completion(
        self,
        flow_id: str,
        step: StepExecutionId,
        options: WaitForStepCompletionOptions | None = None,
        *,
        run_id: str | None = None,
    ) -> "long_polls.Looks[None]":
        """Wait until a Step execution, which need not exist yet, is COMPLETED.

        Raises FlowNotFoundError, FlowNotActiveOrNotFoundError when it failed or was canceled or the run closes first,
        and LongPollTimeoutError.
        """
        _check_id("Flow ID", flow_id)
        long_polls.check_step(step)
        limit = long_polls.limit_of(options, WaitForStepCompletionOptions)
        run = rpc.restarting(partial(selectors.find_run, flow_id, _run_id(run_id)))
        yield from long_polls.step_completion(run, step, limit)

    @long_polls.blocking
    def wait_for_attribute_match(
        self,
        flow_id: str,
        attribute: AttributeDefinition,
        *instance_and_match: Any,
        options: WaitForAttributeOptions | None = None,
        run_id: str | None = None,
    ) -> "long_polls.Looks[Any]":
        """`(flow_id, attribute[, instance], AttributeMatch[, options])`: wait for a committed value and return it.

        A declared default counts as the value where there is none; `equal_to(None)` waits until none is stored. Raises
        FlowNotFoundError, ValueMappingError for a value of another type, FlowNotActiveOrNotFoundError when the run is
        closed without a match, and LongPollTimeoutError.
        """
        _check_id("Flow ID", flow_id)
        instance, match, limit = long_polls.match_arguments(instance_and_match, options)
        selected = _selector(attribute, instance)
        if attribute.hard_delete_on_null:
            raise InvalidRequestError(f"{attribute!r} is secret and cannot be matched")
        run = rpc.restarting(partial(selectors.find_run, flow_id, _run_id(run_id)))
        _check_declared(registry.get(run.flow_type), (selected,))
        return (yield from long_polls.attribute_match(run, selected, match, limit))

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

    def update_flow_config(self, flow_id: str, config: FlowConfig, *, run_id: str | None = None) -> None:
        """Change the settings of the running run that are not None; one round trip.

        With another `worker_target` its open Steps move to that queue too, but those that name a queue of their own.
        Raises FlowNotActiveOrNotFoundError, and InvalidRequestError for a setting without effect so far.
        """
        _check_id("Flow ID", flow_id)
        if not isinstance(config, FlowConfig):
            raise InvalidRequestError(f"update_flow_config takes a FlowConfig, not {config!r}")
        given = _run_id(run_id)
        rpc.restarting(lambda: configuring.update_config(flow_id, given, config))

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
                rpc.store(opened, Effects(writes=starting.encoded_writes(definition, parts)))

        rpc.restarting(write)


def _check_id(what: str, value: object) -> None:
    of_sub_flow = what == "Flow ID" and isinstance(value, str) and value.startswith("SubFlow:")
    longest = MAX_SUB_FLOW_ID if of_sub_flow else MAX_ID_LENGTH
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise InvalidRequestError(f"{what} must be a text of 1 to {longest} characters, not {str(value)[:80]!r}")
    if FORBIDDEN_IN_ID.search(value):
        raise InvalidRequestError(f"{what} must not contain '/', control characters or lone surrogates: {value!r}")
    if len(value.encode()) > MAX_SUB_FLOW_BYTES:
        raise InvalidRequestError(f"{what} must take at most {MAX_SUB_FLOW_BYTES} bytes, not {value[:80]!r}")


def _run_id(value: str | None) -> UUID | None:
    try:
        return None if value is None else UUID(str(value))
    except ValueError:
        raise InvalidRequestError(f"run ID must be a UUID, not {str(value)[:80]!r}") from None


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


def _batch(channel: ChannelDefinition, values: tuple[Any, ...]) -> messages.Batch:
    """Encode messages through a Channel's own buffer, as a handler of a Flow that has it would."""
    flows = [each for each in registry.definitions() if each.channels.get(getattr(channel, "name", "")) is channel]
    if not flows:
        raise InvalidRequestError(f"{channel!r} is no Channel of a registered Flow")
    instance, published = ("", values) if isinstance(channel, Channel) else (values[0] if values else "", values[1:])
    buffer = ChannelBuffer(schema=flows[0].channels, max_value_bytes=conf().max_value_bytes)
    buffer.publish(channel, published, instance)
    return messages.Batch(flow_types=tuple(each.flow_type for each in flows), messages=tuple(buffer.published))


def _awaitable_looks(looking: Callable[..., "long_polls.Looks[Any]"]) -> Any:
    async def wait(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        return await long_polls.awaiting(looking(self._client, *args, **kwargs))

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
