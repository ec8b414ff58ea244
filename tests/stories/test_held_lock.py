"""What others may do while a Step on a real worker holds a lock for five seconds."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connections

from dexflows import RPCInvokeOptions
from dexflows.client import Client
from dexflows.errors import RpcLockConflictError
from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Hold
from tests.stories.holding import FREE, HELD, Put, box_flow, boxes

pytestmark = pytest.mark.worker

CALLS = 100
CALLERS = 8
WAITERS = ("KeepStep-2", "KeepStep-3", "KeepStep-4")
HELD_FOR_FIVE_SECONDS = """
SELECT FROM story_ledger WHERE run_id = %s AND step = 'KeepStep-1' AND clock_timestamp() - at > interval '5 s'
"""


@dataclass(frozen=True)
class Answer:
    """The locks that stood in the way of a call, and after how many seconds it returned."""

    busy: tuple[str, ...]
    seconds: float


def put(flow_id: str, box: str) -> Answer:
    """Put a thing into a box, under its lock."""
    options = RPCInvokeOptions(
        lock_attribute_map_instances=(boxes.lock(box),), load_attribute_map_instances=(boxes.load(box),)
    )
    began = time.monotonic()
    busy: tuple[str, ...] = ()
    try:
        Client().invoke_rpc(box_flow.put, flow_id, Put(box, "thing"), options=options)
    except RpcLockConflictError as refusal:
        busy = refusal.locks
    return Answer(busy, time.monotonic() - began)


def put_often(flow_id: str, box: str) -> list[Answer]:
    """Call again and again, by eight callers, each with a session of its own."""

    def call(share: range) -> list[Answer]:
        try:
            return [put(flow_id, box) for _ in share]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(CALLERS) as pool:
        shares = [range(first, CALLS, CALLERS) for first in range(CALLERS)]
        return [answer for share in pool.map(call, shares) for answer in share]


def begin(story: Story, gate: Path) -> tuple[str, str]:
    """Start a Step that holds the lock, then three that wait for it, one after the other; gives Flow and run ID."""
    flow_id = uuid.uuid4().hex
    run_id = story.client.start_flow(box_flow, flow_id, Hold(str(gate)))
    story.until(lambda: story.attempts(flow_id, "KeepStep-1"))
    for before in range(len(WAITERS)):
        story.client.invoke_rpc(box_flow.keep, flow_id, Hold(str(gate)))
        story.until(lambda before=before: len(story.rows("SELECT FROM dexflows_lock_wait")) > before)
    return flow_id, run_id


def test_calls_are_refused_at_once_waiters_keep_their_order_and_everything_else_goes_on(
    story: Story, start_worker: Callable[..., StoryWorker], tmp_path: Path
) -> None:
    start_worker(concurrency=2, modules=("tests.stories.holding",))
    gate = tmp_path / "gate"
    flow_id, run_id = begin(story, gate)

    # The worker has two processes: the holder has one, and no waiter has the other.
    story.client.invoke_rpc(box_flow.go_past, flow_id)
    story.until(lambda: story.steps(flow_id, "state", "PassStep") == [("COMPLETED",)])
    assert story.client.invoke_rpc(box_flow.look, flow_id) == 1
    unhindered = [put(flow_id, FREE) for _ in range(10)]
    assert [answer.busy for answer in unhindered] == [()] * 10

    answers = put_often(flow_id, HELD)
    assert [answer.busy for answer in answers] == [(f"boxes/{HELD}",)] * CALLS
    # On a machine too busy for a second, eight callers at once take no longer than eight unhindered calls in turn.
    patience = max(1.0, CALLERS * max(answer.seconds for answer in unhindered))
    assert max(answer.seconds for answer in answers) < patience

    story.until(lambda: story.rows(HELD_FOR_FIVE_SECONDS, run_id))
    assert story.steps(flow_id, "state", "KeepStep") == [("RUNNING",), *[("WAITING_FOR_LOCK",)] * len(WAITERS)]
    gate.touch()
    assert story.client.wait_for_flow(flow_id, 20).status == "COMPLETED"
    assert story.client.get_attribute(flow_id, boxes, HELD) == ["KeepStep-1", *WAITERS]
    assert story.client.get_attribute(flow_id, boxes, FREE) == ["PassStep-1", *["thing"] * 10]
    assert len(story.attempts(flow_id)) == 1 + len(WAITERS) + 1
    story.assert_at_rest()
