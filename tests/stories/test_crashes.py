"""Workers that die, stand still or stop in the middle of a Step."""

import os
import signal
from pathlib import Path

import pytest

from dexflows.errors import RpcLockConflictError
from tests.stories.conftest import FLEET, Fleet, Story
from tests.stories.flows import Hold, story_flow

pytestmark = pytest.mark.worker

GAP = """
SELECT extract(epoch FROM max(at) - min(at)) < %s FROM story_ledger WHERE run_id = %s AND step = 'HoldStep-1'
"""


def _begin(story: Story, gate: Path) -> tuple[str, int]:
    """Start a Step that holds a lock until the gate is there; returns the Flow ID and the pid that runs it."""
    flow_id = story.start("HoldStep", hold=Hold(str(gate)))
    ((_, attempt, pid),) = story.until(lambda: story.attempts(flow_id))
    assert attempt == 1
    return flow_id, pid


def _assert_repeated_once(story: Story, flow_id: str) -> None:
    assert story.result(flow_id) == 1
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1, 2]
    assert story.steps(flow_id, "state, attempt", "HoldStep") == [("COMPLETED", 2)]
    story.assert_at_rest()


def _took_less_than(story: Story, flow_id: str, seconds: float) -> bool:
    """Whether so little time passed between the first and the last attempt."""
    ((less,),) = story.rows(GAP, seconds, story.client.describe_flow(flow_id).run_id)
    return bool(less)


def test_a_killed_child_loses_its_step_at_once(story: Story, fleet: Fleet, tmp_path: Path) -> None:
    flow_id, pid = _begin(story, tmp_path / "gate")
    with pytest.raises(RpcLockConflictError):
        story.client.invoke_rpc(story_flow.bump, flow_id)
    os.kill(pid, signal.SIGKILL)
    _assert_repeated_once(story, flow_id)
    assert _took_less_than(story, flow_id, FLEET["LEASE_SECONDS"] - FLEET["HEARTBEAT_SECONDS"])


@pytest.mark.parametrize("what", ["parent", "group"])
def test_another_worker_takes_over_from_a_killed_one(story: Story, fleet: Fleet, tmp_path: Path, what: str) -> None:
    flow_id, pid = _begin(story, tmp_path / "gate")
    victim = fleet.of(pid)
    if what == "parent":
        victim.signal(signal.SIGKILL)
    else:
        victim.kill_group()
    _assert_repeated_once(story, flow_id)


def test_a_worker_that_wakes_after_its_lease_changes_nothing(story: Story, fleet: Fleet, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    flow_id, pid = _begin(story, gate)
    sleeper = fleet.of(pid)
    sleeping = sleeper.pids()
    for each in sleeping:
        os.kill(each, signal.SIGSTOP)
    assert story.result(flow_id) == 1
    gate.touch()
    for each in sleeping:
        os.kill(each, signal.SIGCONT)
    story.until(lambda: "is not the current one any more" in sleeper.text())
    _assert_repeated_once(story, flow_id)


def test_sigterm_lets_steps_end_and_gives_back_those_that_do_not(story: Story, fleet: Fleet, tmp_path: Path) -> None:
    flow_id, pid = _begin(story, tmp_path / "gate")
    leaving = fleet.of(pid)
    leaving.signal(signal.SIGTERM)
    story.until(lambda: len(story.attempts(flow_id)) == 2)
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1, 1]
    assert _took_less_than(story, flow_id, FLEET["LEASE_SECONDS"] - FLEET["HEARTBEAT_SECONDS"])
    assert leaving.wait(10) == 0
    (tmp_path / "gate").touch()
    assert story.result(flow_id) == 1
    story.assert_at_rest()
