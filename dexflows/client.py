"""Starting, calling, reading and stopping Flows.

`Client()` and `AsyncClient()` are cheap to make and hold nothing. Inside a `transaction.atomic()` block of the
engine's database, what a client writes is part of that block.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import transaction

from dexflows import long_polls, selectors, streaming
from dexflows.arguments import batch_of, check_declared, check_id, options_of, run_id_of, selector_of, write_of
from dexflows.attribute import AttributeDefinition
from dexflows.channel import ChannelDefinition
from dexflows.conf import conf
from dexflows.engine import closing, configuring, messages, rpc, starting
from dexflows.engine.keys import LoadSet, LockSet
from dexflows.engine.outcomes import Effects
from dexflows.errors import FlowAlreadyStartedError, InvalidRequestError
from dexflows.flow import Flow
from dexflows.flow_result import FlowResult
from dexflows.options import FlowConfig, RPCInvokeOptions, StartFlowOptions, StopFlowOptions
from dexflows.registry import registry
from dexflows.selectors import FlowInfo
from dexflows.stream import Stream, StreamMessage, StreamPage
from dexflows.targets import (
    StepExecutionId,
    TimerId,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
)

__all__ = ["Client"]

T = TypeVar("T")


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
        options = options_of(StartFlowOptions, options)
        payload = starting.start_payload(registry.definition_of(flow), input, options)
        check_id("Flow ID", flow_id)
        if options.request_id is not None:
            check_id("request ID", options.request_id)
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
        check_id("Flow ID", flow_id)
        if not rpc_definition.has_input and input is not None:
            raise InvalidRequestError(f"RPC {rpc_definition.name} takes no input")
        codec = rpc_definition.input_codec
        encoded = codec.encode(input, key="input", limit=conf().max_value_bytes) if codec else "null"
        call = rpc.Invocation.of(
            definition,
            rpc_definition,
            flow_id,
            run_id_of(run_id),
            encoded,
            options_of(RPCInvokeOptions, options),
        )
        return rpc_definition.output_codec.decode(rpc.invoke(call))

    def describe_flow(self, flow_id: str, *, run_id: str | None = None) -> FlowInfo:
        """The latest (or given) run of a Flow ID. Raises FlowNotFoundError."""
        check_id("Flow ID", flow_id)
        return rpc.restarting(lambda: selectors.describe(selectors.find_run(flow_id, run_id_of(run_id))))

    @long_polls.blocking
    def wait_for_flow(
        self, flow_id: str, timeout: float | timedelta | None = None, *, run_id: str | None = None
    ) -> "long_polls.Looks[FlowResult]":
        """Wait until the run has closed and return its result; a `timeout` of None waits without end, 0 looks once.

        Without `run_id` it is the latest run, and where that fails and is retried, the run that retries it. Raises
        FlowNotFoundError, and LongPollTimeoutError when the run is still running at the end.
        """
        check_id("Flow ID", flow_id)
        limit = long_polls.TimeLimit(timeout)
        return (yield from long_polls.flow_result(flow_id, run_id_of(run_id), limit))

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
        check_id("Flow ID", flow_id)
        long_polls.check_step(step)
        limit = long_polls.limit_of(options, WaitForStepCompletionOptions)
        run = rpc.restarting(partial(selectors.find_run, flow_id, run_id_of(run_id)))
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
        check_id("Flow ID", flow_id)
        instance, match, limit = long_polls.match_arguments(instance_and_match, options)
        selected = selector_of(attribute, instance)
        if attribute.hard_delete_on_null:
            raise InvalidRequestError(f"{attribute!r} is secret and cannot be matched")
        run = rpc.restarting(partial(selectors.find_run, flow_id, run_id_of(run_id)))
        check_declared(registry.get(run.flow_type), (selected,))
        return (yield from long_polls.attribute_match(run, selected, match, limit))

    def stop_flow(self, flow_id: str, options: StopFlowOptions | None = None, *, run_id: str | None = None) -> None:
        """Close the running run at once. Raises FlowNotActiveOrNotFoundError when there is none."""
        options = options_of(StopFlowOptions, options)
        check_id("Flow ID", flow_id)
        given = run_id_of(run_id)
        rpc.restarting(lambda: closing.stop(flow_id, given, options.type, options.reason))

    def publish(self, flow_id: str, channel: ChannelDefinition, *values: Any, run_id: str | None = None) -> list[str]:
        """Publish messages to a Channel in this order and return their IDs; of a ChannelMap, the instance comes first.

        Raises ValueMappingError for a message of the wrong type, FlowNotActiveOrNotFoundError unless the run is
        running.
        """
        check_id("Flow ID", flow_id)
        given, batch = run_id_of(run_id), batch_of(channel, values)
        return rpc.restarting(lambda: messages.send(flow_id, given, batch)) if batch.messages else []

    def skip_timer(
        self, flow_id: str, step_execution_id: StepExecutionId, timer_id: TimerId, *, run_id: str | None = None
    ) -> None:
        """Let a Timer of a Step's wait fire now; it is remembered for a Step that does not wait yet.

        Nothing happens when that wait is over. Raises FlowNotActiveOrNotFoundError unless the run is running, and
        InvalidRequestError when the wait has no such Timer.
        """
        check_id("Flow ID", flow_id)
        long_polls.check_step(step_execution_id)
        if not isinstance(timer_id, TimerId):
            raise InvalidRequestError(
                f"a Timer is named by TimerId.by_condition_index or by_condition_id, not {timer_id!r}"
            )
        given = run_id_of(run_id)
        rpc.restarting(lambda: messages.skip_timer(flow_id, given, step_execution_id, timer_id))

    def update_flow_config(self, flow_id: str, config: FlowConfig, *, run_id: str | None = None) -> None:
        """Change the settings of the running run that are not None; one round trip.

        With another `worker_target` its open Steps of the old queue move too; those of another queue stay there.
        Raises FlowNotActiveOrNotFoundError, and InvalidRequestError for a setting without effect so far.
        """
        check_id("Flow ID", flow_id)
        if not isinstance(config, FlowConfig):
            raise InvalidRequestError(f"update_flow_config takes a FlowConfig, not {config!r}")
        given = run_id_of(run_id)
        rpc.restarting(lambda: configuring.update_config(flow_id, given, config))

    def get_attribute(
        self, flow_id: str, attribute: AttributeDefinition, instance: str | None = None, *, run_id: str | None = None
    ) -> Any:
        """The committed value of an Attribute or of one map instance; the default where there is none."""
        return self.get_attributes(flow_id, selector_of(attribute, instance), run_id=run_id)[0]

    def get_attributes(self, flow_id: str, *selected: selectors.Selector, run_id: str | None = None) -> list[Any]:
        """The committed values of `attribute` and `attribute_map.load(instance)` selectors, in order."""
        check_id("Flow ID", flow_id)
        given = run_id_of(run_id)

        def read() -> list[Any]:
            run = selectors.find_run(flow_id, given)
            check_declared(registry.get(run.flow_type), selected)
            return selectors.attribute_values(run, selected)

        return rpc.restarting(read)

    def set_attribute(self, flow_id: str, attribute: AttributeDefinition, *instance_and_value: Any) -> None:
        """`set_attribute(flow_id, attribute, value)` or `set_attribute(flow_id, attribute_map, instance, value)`."""
        self.set_attributes(flow_id, (attribute, *instance_and_value))

    def set_attributes(self, flow_id: str, *writes: tuple[Any, ...], run_id: str | None = None) -> None:
        """Write `(attribute, value)` and `(attribute_map, instance, value)` in one transaction; None deletes.

        Is not held up by locks. Raises FlowNotActiveOrNotFoundError unless the run is running.
        """
        check_id("Flow ID", flow_id)
        given, parts = run_id_of(run_id), [write_of(write) for write in writes]

        def write() -> None:
            with transaction.atomic(using=conf().database):
                opened = rpc.open_run(flow_id, given, True, LockSet(), LoadSet.of({}, (), ()))
                definition = registry.get(opened.flow_type)
                if definition is None:
                    raise InvalidRequestError(f"Flow type {opened.flow_type} is not known to the running code")
                rpc.store(opened, Effects(attributes=starting.encoded_writes(definition, parts)))

        rpc.restarting(write)

    def write_stream(
        self, flow_id: str, stream: Stream[T], source: str, value: T, *, run_id: str | None = None
    ) -> StreamMessage[T] | None:
        """Write a message to a Stream, of a closed run too; None when Redis is away and it is lost.

        `source` names the writer to readers. Raises FlowNotFoundError, ValueMappingError, InvalidRequestError.
        """
        check_id("Flow ID", flow_id)
        return streaming.write(flow_id, run_id_of(run_id), stream, source, value)

    @long_polls.blocking
    def read_stream(
        self,
        flow_id: str,
        stream: Stream[T],
        token: str = "",
        limit: int = 100,
        wait: float = 0.0,
        *,
        run_id: str | None = None,
    ) -> "long_polls.Looks[StreamPage[T]]":
        """The oldest messages, or those after the page whose `next_page_token` is given; the token stays with its run.

        Where there is none yet, waits up to `wait` seconds (at most 60) and gives the database connection back while it
        does. A reader that was too slow goes on with the oldest message there is. Raises FlowNotFoundError, and
        UnavailableError while Redis is away.
        """
        check_id("Flow ID", flow_id)
        return (yield from streaming.read(flow_id, run_id_of(run_id), stream, token, limit, wait))

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
        check_id("Flow ID", flow_id)
        return streaming.list_newest(flow_id, run_id_of(run_id), stream, page_size, next_page_token)
