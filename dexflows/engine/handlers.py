"""Calling a Step's handler and turning what it did into an outcome."""

import inspect
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypedDict

import msgspec
from asgiref.sync import async_to_sync

from dexflows.buffer import AttributeBuffer, ChannelBuffer, QueuedMessage
from dexflows.channel import load_of
from dexflows.codec import encode_output
from dexflows.conf import conf
from dexflows.context import NOT_WAITED, Context
from dexflows.decision import DecisionKind, StepDecision
from dexflows.engine import streams
from dexflows.engine.claims import Claim
from dexflows.engine.effects import attribute_effects
from dexflows.engine.heartbeats import Heart
from dexflows.engine.keys import LoadSet
from dexflows.engine.leases import Holding
from dexflows.engine.movements import movement_of
from dexflows.engine.outcomes import Effects, Ended, GoneOn, Outcome, Raised, Waits, WaitSkipped, clean
from dexflows.engine.timelimit import TimeLimit
from dexflows.engine.waits import encode_wait, next_timer
from dexflows.errors import InvalidStepResultError
from dexflows.registry import FlowDefinition
from dexflows.scope import check_channel_scope
from dexflows.states import RunStatus, StepMethod
from dexflows.wait import Wait, Waited

logger = logging.getLogger(__name__)

COMPLETING = (
    DecisionKind.GRACEFUL_COMPLETE,
    DecisionKind.FORCE_COMPLETE,
    DecisionKind.FORCE_COMPLETE_IF_CHANNELS_EMPTY,
)
"""The decisions with an output."""


class _Row(msgspec.Struct, array_like=True):
    name: str
    instance: str
    value: msgspec.Raw
    seq: int | None = None
    """Only messages have one."""


class Buffers(TypedDict):
    """The parts of a Context that hold a run's state."""

    attributes: AttributeBuffer
    channels: ChannelBuffer


_rows = msgspec.json.Decoder(list[_Row])
_locals = msgspec.json.Decoder(dict[str, msgspec.Raw])


def call(claim: Claim, holding: Holding) -> Outcome:
    """Run the handler of a claimed attempt to its end. Never raises: whatever leaves the handler is an outcome."""
    try:
        return _call(claim, holding)
    except BaseException as error:  # noqa: BLE001 - whatever leaves the handler is an outcome
        return failed(claim, error)


def failed(claim: Claim, error: BaseException) -> Raised:
    """The outcome of an attempt that ends with an error; logged without the error's text, which may hold values."""
    outcome = Raised.by(error)
    logger.warning(
        "attempt %d of %s %s in run %s failed: %s",
        claim.attempt,
        claim.key.step_execution_id,
        claim.method,
        claim.key.run_id,
        outcome.error_type,
        exc_info=logger.isEnabledFor(logging.DEBUG),
    )
    return outcome


def _call(claim: Claim, holding: Holding) -> Outcome:
    value = claim.step.input_codec.decode(claim.input)
    options = claim.method_plan.options
    limit = TimeLimit(options.timeout, options.heartbeat_timeout)
    heart = Heart(claim, limit, holding)
    context = _context(claim, heart)
    holding.extend(limit.left)
    try:
        with limit.interrupting():
            handler = claim.step.step.wait_for if claim.method is StepMethod.WAIT_FOR else claim.step.step.execute
            result = run_handler(handler, context, value)
    finally:
        holding.done()
        heart.close()
    effects = effects_of(claim.flow, context)
    if claim.method is StepMethod.WAIT_FOR:
        if not isinstance(result, Wait):
            raise InvalidStepResultError(f"wait_for must return a Wait, not {type(result).__name__}")
        if not result.conditions:
            return WaitSkipped(effects=effects)
        return Waits(effects=effects, wait=encode_wait(claim.flow, result), next_timer=next_timer(result))
    if not isinstance(result, StepDecision):
        raise InvalidStepResultError(f"execute must return a StepDecision, not {type(result).__name__}")
    return _decided(claim, result, effects)


def run_handler(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a handler; an `async def` one is run to completion in this thread's own event loop."""
    if inspect.iscoroutinefunction(handler):
        return async_to_sync(handler)(*arguments)
    return handler(*arguments)


def buffers_of(flow: FlowDefinition, load: LoadSet, state: str, waited: Waited = NOT_WAITED) -> Buffers:
    """What a handler sees of the state that `sql/load.sql` returned."""
    loaded: dict[tuple[str, str], msgspec.Raw] = {}
    queued: dict[tuple[str, str], list[QueuedMessage]] = {}
    for row in _rows.decode(state) if state != "[]" else ():
        if row.seq is None:
            loaded[row.name, row.instance] = row.value
        else:
            queued.setdefault((row.name, row.instance), []).append((row.seq, row.value))
    limit = conf().max_value_bytes
    attributes = AttributeBuffer(
        schema=flow.attributes,
        loaded=loaded,
        loaded_maps=load.maps,
        loaded_instances=load.instances,
        max_value_bytes=limit,
    )
    channels = ChannelBuffer(
        schema=flow.channels, loaded=queued, loads=load.channels, taken=waited.messages, max_value_bytes=limit
    )
    return {"attributes": attributes, "channels": channels}


def effects_of(flow: FlowDefinition, context: Context) -> Effects:
    """What a handler buffered."""
    return Effects(
        attributes=attribute_effects(flow, context.attributes.writes),
        published=tuple(context.channels.published),
        deleted=tuple(context.channels.deleted),
        events=tuple(context.events),
        local_writes=context.local_writes,
    )


def _context(claim: Claim, heart: Heart) -> Context:
    stored = _locals.decode(claim.locals) if claim.locals else {}
    return Context(
        flow_id=claim.flow_id,
        run_id=str(claim.key.run_id),
        **buffers_of(claim.flow, claim.method_plan.load, claim.attributes, claim.waited),
        waited=claim.waited,
        step_execution_id=claim.key.step_execution_id,
        from_step_execution_id=claim.from_step,
        attempt=claim.attempt,
        first_attempt_at=claim.first_attempt_at,
        attempt_started_at=claim.first_attempt_at + timedelta(seconds=claim.elapsed),
        recovery_error=claim.recovery,
        step_locals={key: bytes(value).decode() for key, value in stored.items()},
        is_cancellation_requested=heart.is_stopped,
        heartbeat=heart.beat,
        last_heartbeat=claim.heartbeat,
        open_stream=partial(streams.open_for_step, claim.flow, claim.key),
    )


def _decided(claim: Claim, decision: StepDecision, effects: Effects) -> Outcome:
    cancel = tuple(claim.flow.resolve_step(step).step_type for step in decision.canceling_steps)
    siblings = tuple(claim.flow.resolve_step(step).step_type for step in decision.canceling_sibling_steps)
    if decision.kind is DecisionKind.GO_TO:
        movements = tuple(movement_of(claim.flow, each, claim.run_queue) for each in decision.movements)
        return GoneOn(effects=effects, movements=movements, cancel=cancel, cancel_siblings=siblings)
    output = None
    if decision.kind in COMPLETING:
        output = encode_output(decision.output, key="output", limit=conf().max_value_bytes)
    close = _closes(claim, decision)
    fallback = movement_of(claim.flow, decision.movements[0], claim.run_queue) if decision.movements else None
    return Ended(
        effects=effects, output=output, close=close, fallback=fallback, cancel=cancel, cancel_siblings=siblings
    )


def _closes(claim: Claim, decision: StepDecision) -> dict[str, Any]:
    match decision.kind:
        case DecisionKind.FORCE_COMPLETE_IF_CHANNELS_EMPTY:
            check_channel_scope("force_complete_if_channels_empty", claim.flow.channels, decision.channels)
            unless = [load_of(channel) for channel in decision.channels]
            return {"mode": "force", "status": RunStatus.COMPLETED, "unless": unless}
        case DecisionKind.GRACEFUL_COMPLETE:
            return {"mode": "graceful", "status": RunStatus.COMPLETED}
        case DecisionKind.FORCE_COMPLETE:
            return {"mode": "force", "status": RunStatus.COMPLETED}
        case DecisionKind.FORCE_FAIL:
            reason = clean(decision.reason)
            return {"mode": "force", "status": RunStatus.FAILED, "error_type": "FORCE_FAIL", "error_message": reason}
        case _:
            return {"mode": "dead_end", "status": RunStatus.COMPLETED}
