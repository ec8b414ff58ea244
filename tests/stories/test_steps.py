"""What Steps do on a worker that stays alive."""

from pathlib import Path

import pytest

from tests.stories.conftest import Story, StoryWorker
from tests.stories.flows import Hold, story_flow

pytestmark = [pytest.mark.worker, pytest.mark.usefixtures("shared_worker")]


def test_a_flow_runs_its_steps_and_completes(story: Story) -> None:
    flow_id = story.start("CountStep", 5.0)
    assert story.result(flow_id) == 5
    assert [attempt[:2] for attempt in story.attempts(flow_id)] == [(f"CountStep-{n}", 1) for n in range(1, 6)]
    story.assert_at_rest()


def test_a_backoff_ends_in_time_without_a_sweep(story: Story) -> None:
    flow_id = story.start("FlakyStep", 3.0)
    assert story.result(flow_id, 5) == 4
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1, 2, 3, 4]


def test_a_process_keeps_its_database_session_from_step_to_step(story: Story) -> None:
    for flow_id in [story.start("FlakyStep", 1.0) for _ in range(6)]:
        story.result(flow_id)
    sessions = story.rows("SELECT pid, count(DISTINCT session), count(*) FROM story_ledger GROUP BY pid")
    assert {distinct for _, distinct, _ in sessions} == {1}
    assert sum(attempts for _, _, attempts in sessions) == 12


def test_a_method_timeout_interrupts_a_handler_that_sleeps(story: Story) -> None:
    flow_id = story.start("SleepyStep", 30.0)
    assert story.result(flow_id, 10) == 2
    assert len({pid for _, _, pid in story.attempts(flow_id)} - {0}) >= 1


def test_a_handler_that_cannot_be_interrupted_is_ended_with_its_process(story: Story) -> None:
    flow_id = story.start("StuckStep")
    assert story.result(flow_id, 10) == 2
    pids = [pid for _, _, pid in story.attempts(flow_id)]
    assert len(set(pids)) == 2
    assert story.steps(flow_id, "failure ->> 'error_type'", "StuckStep") == [("MethodTimeoutError",)]


def test_heartbeats_keep_a_busy_handler_going(story: Story) -> None:
    flow_id = story.start("BeatStep", 8.0)
    assert story.result(flow_id, 15) == 7
    assert len(story.attempts(flow_id)) == 1


def test_a_handler_that_falls_silent_and_cannot_be_interrupted_is_ended_with_its_process(story: Story) -> None:
    flow_id = story.start("BeatStep", 1.0)
    assert story.result(flow_id, 15) == 0
    assert len({pid for _, _, pid in story.attempts(flow_id)}) == 2
    assert story.steps(flow_id, "failure ->> 'error_type'", "BeatStep") == [("HeartbeatTimeoutError",)]


def test_a_step_that_kills_its_process_fails_after_its_last_attempt(story: Story) -> None:
    flow_id = story.start("DieStep")
    beside = story.start("CountStep", 3.0)
    result = story.client.wait_for_flow(flow_id, 15)
    assert (result.status, result.error_type) == ("FAILED", "WORKER_API_FAILED")
    assert "WorkerLost" in (result.error_message or "")
    assert [attempt for _, attempt, _ in story.attempts(flow_id)] == [1, 2, 3]
    assert story.steps(flow_id, "state, attempt", "DieStep") == [("FAILED", 3)]
    assert story.result(beside) == 3
    story.assert_at_rest()


def test_waiters_for_a_lock_occupy_no_worker_and_run_in_the_order_they_came(
    story: Story, shared_worker: StoryWorker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    flow_id = story.start("HoldStep", hold=Hold(str(gate)))
    story.until(lambda: story.attempts(flow_id))
    for number in (2, 3, 4):
        story.client.invoke_rpc(story_flow.queue_up, flow_id, [Hold(str(gate))])
        story.until(
            lambda number=number: story.steps(flow_id, "state", "HoldStep")[number - 1 :] == [("WAITING_FOR_LOCK",)]
        )
    story.client.invoke_rpc(story_flow.go_beside, flow_id)
    story.until(lambda: story.attempts(flow_id, "FlakyStep-1"))
    assert shared_worker.concurrency == 2
    assert story.client.describe_flow(flow_id).status == "RUNNING"
    assert len(story.attempts(flow_id, "HoldStep%")) == 1
    gate.touch()
    result = story.client.wait_for_flow(flow_id, 10)
    assert result.status == "COMPLETED"
    assert [step for step, _, _ in story.attempts(flow_id, "HoldStep%")] == [f"HoldStep-{n}" for n in (1, 2, 3, 4)]
    assert story.client.get_attribute(flow_id, story_flow.count) == 4
    story.assert_at_rest()
