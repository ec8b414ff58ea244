"""Publishing to Channels and skipping timers from outside: one statement each."""

from dataclasses import dataclass
from uuid import UUID

import msgspec

from dexflows import sql
from dexflows.buffer import AttributeKey
from dexflows.conf import conf
from dexflows.engine.closing import check_running
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import array_literal, step_keys
from dexflows.engine.outcomes import raw
from dexflows.errors import InvalidRequestError
from dexflows.registry import registry
from dexflows.targets import StepExecutionId, TimerId

SEND = "SELECT * FROM dexflows_send(%s, %s, %s::text[], %s::jsonb)"
SKIP_TIMER = "SELECT * FROM dexflows_skip_timer(%s, %s, %s, %s, %s, %s::text[])"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Encoded messages in order, and the Flow types that have their Channels."""

    flow_types: tuple[str, ...]
    messages: tuple[tuple[AttributeKey, str], ...]


def send(flow_id: str, run_id: UUID | None, batch: Batch) -> list[str]:
    """Publish to a running run and return the message IDs, in order.

    Raises FlowNotActiveOrNotFoundError, and InvalidRequestError when the run's Flow has no such Channel.
    """
    text = msgspec.json.encode([(*key, raw(value)) for key, value in batch.messages]).decode()
    arguments = (flow_id, run_id, array_literal(batch.flow_types), text)
    outcome, run, flow_type, status, ids, rings = sql.call(conf().database, SEND, arguments)[0]
    check_running(flow_id, outcome, run, status)
    if outcome == "foreign":
        raise InvalidRequestError(f"Flow {flow_id!r} is a {flow_type}, which has no such Channel")
    ring_after_commit(step_keys(run, rings))
    return msgspec.json.decode(ids, type=list[str])


def skip_timer(flow_id: str, run_id: UUID | None, step: StepExecutionId, timer: TimerId) -> None:
    """Let a timer fire now, or as soon as its Step waits; nothing happens when that wait is over.

    Raises FlowNotActiveOrNotFoundError, and InvalidRequestError when the wait has no such timer, or the Flow no such
    Step.
    """
    name = str(timer.index) if timer.condition_id is None else f"id:{timer.condition_id}"
    lacking = [each.flow_type for each in registry.definitions() if step.step_type not in each.steps]
    arguments = (flow_id, run_id, step.step_type, step.number, name, array_literal(lacking))
    outcome, run, flow_type, status, timers, rings = sql.call(conf().database, SKIP_TIMER, arguments)[0]
    check_running(flow_id, outcome, run, status)
    if outcome == "foreign":
        raise InvalidRequestError(f"Flow {flow_id!r} is a {flow_type}, which has no Step {step.step_type!r}")
    if outcome == "unknown":
        raise InvalidRequestError(f"the wait of {step} has no timer {name!r}; its timers: {timers or 'none'}")
    ring_after_commit(step_keys(run, rings))
