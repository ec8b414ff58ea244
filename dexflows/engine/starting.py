"""Starting a run: run, initial Attributes and start Step in one statement, or the existing run's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from dexflows import sql
from dexflows.conf import conf
from dexflows.decision import StepMovement
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import step_keys
from dexflows.engine.movements import movement_of
from dexflows.engine.outcomes import Effects, raw
from dexflows.registry import FlowDefinition
from dexflows.states import IdReusePolicy

START = "SELECT * FROM dexflows_start(%s::jsonb)"


@dataclass(frozen=True, slots=True)
class Started:
    """The run that a start made, or (`started` False) the one that is in its way."""

    started: bool
    run_id: UUID
    request_id: str | None


def start(
    flow: FlowDefinition,
    flow_id: str,
    input: object,
    *,
    policy: IdReusePolicy,
    request_id: str | None,
    config: Mapping[str, Any],
    writes: Mapping[tuple[str, str], str | None],
) -> Started:
    """Start a run inside the caller's transaction, or in one of its own. One round trip."""
    limit = conf().max_value_bytes
    queue = config.get("worker_target") or conf().default_queue
    payload: dict[str, Any] = {
        "flow_id": flow_id,
        "flow_type": flow.flow_type,
        "queue": queue,
        "policy": policy,
        "request_id": request_id,
        "input": raw(flow.input_codec.encode(input, key="input", limit=limit)),
        "config": config or None,
        **Effects(writes=writes).to_payload(),
    }
    if flow.start_step is not None:
        movement = movement_of(flow, StepMovement.of(flow.start_step.step, input), queue)
        payload["movements"] = [movement.to_payload()]
    text = msgspec.json.encode(payload).decode()
    started, run_id, known_request, rings = sql.call(conf().database, START, (text,))[0]
    ring_after_commit(step_keys(run_id, rings))
    return Started(started, run_id, known_request)
