"""Ending attempts from outside, and ringing for what is due."""

from math import inf
from uuid import UUID

from dexflows import RetryPolicy, StepMovement, StepOptions
from dexflows.engine import rescue, sweeps, transitions
from dexflows.registry import registry
from tests.engine.kit import Lab, end_lease, holds, in_thread, result, rows, step, steps, value
from tests.flows_lab import LabStep

PLAN = '{"execute": {"timeout": 60, "load": null}}'
LOCKED = '{"execute": {"timeout": 60, "load": null, "x": ["c"], "s": []}}'


def claim(lab: Lab, run_id: UUID, name: str, plan: str = PLAN) -> UUID:
    """Claim as a worker that is never heard of again; returns the token."""
    row = transitions.claim(lab.key(run_id, name), "gone", plan)
    assert row.outcome == "claimed"
    return row.token


def attempt(run_id: UUID, name: str) -> rescue.Claimed:
    """A running attempt as its worker knows it."""
    step_type, _, number = name.rpartition("-")
    return (run_id, step_type, int(number), step(run_id, name, "token"))


def test_only_attempts_whose_lease_is_over_are_ended_and_their_locks_freed(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    lab.create(lab.flow.steps[0])
    claim(lab, run, "Y-1", LOCKED)
    claim(lab, run, "Y-2")
    assert rescue.rescue_expired(10) == 0
    end_lease(run, "Y-1")
    assert holds(run) == {"c": "Y-1"}
    assert rescue.rescue_expired(10) == 1
    assert steps(run) == {"Y-1": "BACKOFF", "Y-2": "RUNNING"}
    assert holds(run) == {}
    assert step(run, "Y-1", "failure ->> 'error_type'") == "WorkerLost"
    assert step(run, "Y-1", "attempt") == 1


def test_a_batch_is_bounded_and_the_next_look_goes_on(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    lab.create(*[lab.flow.steps[0]] * 4)
    for number in range(1, 6):
        claim(lab, run, f"Y-{number}")
        end_lease(run, f"Y-{number}")
    assert [rescue.rescue_expired(2) for _ in range(4)] == [2, 2, 1, 0]


def test_two_rescuers_end_each_attempt_once(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    lab.create(*[lab.flow.steps[0]] * 9)
    for number in range(1, 11):
        claim(lab, run, f"Y-{number}")
        end_lease(run, f"Y-{number}")
    both = [in_thread(rescue.rescue_expired, 10) for _ in range(2)]
    assert sum(map(result, both)) == 10
    assert value("SELECT count(*) FROM dexflows_event WHERE kind = 'STEP_ATTEMPT_FAILED'") == 10


def test_the_last_attempt_fails_the_run_with_a_reason(lab: Lab) -> None:
    lab.define(LabStep("Y", execute_retry=RetryPolicy(maximum_attempts=1)))
    run = lab.start()
    claim(lab, run, "Y-1")
    end_lease(run, "Y-1")
    assert rescue.rescue_expired(10) == 1
    assert steps(run) == {"Y-1": "FAILED"}
    ended = lab.client.wait_for_flow("flow", 0)
    assert (ended.status, ended.error_type) == ("FAILED", "WORKER_API_FAILED")
    assert "WorkerLost" in (ended.error_message or "")
    assert "gone" in (ended.error_message or "")


def test_options_stored_with_the_execution_come_before_those_of_the_code(lab: Lab) -> None:
    lab.define(LabStep("Y", execute_retry=RetryPolicy(maximum_attempts=1)))
    run = lab.start()
    options = StepOptions(execute_retry=RetryPolicy(maximum_attempts=2))
    lab.create(StepMovement.of(lab.flow.steps[0], "", options))
    claim(lab, run, "Y-2")
    end_lease(run, "Y-2")
    assert rescue.rescue_expired(10) == 1
    assert step(run, "Y-2") == "BACKOFF"


def test_an_attempt_of_a_flow_that_is_not_known_here_is_ended_too(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    claim(lab, run, "Y-1")
    end_lease(run, "Y-1")
    with registry.isolated():
        assert rescue.rescue_expired(10) == 1
    assert step(run, "Y-1") == "BACKOFF"


def test_an_attempt_past_its_timeout_is_called_that(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    claim(lab, run, "Y-1", '{"execute": {"timeout": 0, "load": null}}')
    end_lease(run, "Y-1")
    assert rescue.rescue_expired(10) == 1
    assert step(run, "Y-1", "failure ->> 'error_type'") == "MethodTimeoutError"


def test_a_lost_process_is_not_waited_for(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    claim(lab, run, "Y-1")
    held = attempt(run, "Y-1")
    assert rescue.end_lost([held]) == 1
    assert rescue.end_lost([held]) == 0
    assert step(run, "Y-1") == "BACKOFF"


def test_a_released_attempt_is_not_counted_and_rung_for_at_once(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    lab.bell.take()
    claim(lab, run, "Y-1", LOCKED)
    assert rescue.release([attempt(run, "Y-1")]) == 1
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt"), holds(run)) == ("QUEUED", 0, {})
    assert lab.bell.names() == ["Y-1"]
    assert sweeps.ring_due(10) == 1


def test_a_sweep_rings_for_what_is_due_once_and_tells_when_to_look_again(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    assert sweeps.next_due().first == inf
    run = lab.start()
    lab.bell.take()
    pause = sweeps.next_due().first
    assert 0 < pause <= 5
    assert sweeps.ring_due(10) == 0
    rows("UPDATE dexflows_step_execution SET due_at = now()")
    assert sweeps.next_due().is_now
    assert sweeps.ring_due(10) == 1
    assert sweeps.ring_due(10) == 0
    assert lab.bell.take() == [lab.key(run, "Y-1")]


def test_only_a_worker_that_knows_a_parked_step_rings_for_it(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    (key,) = lab.bell.take()
    with registry.isolated():
        assert not lab.run(key)
        assert sweeps.ring_parked(10) == 0
    assert step(run, "Y-1", "parked_reason") is not None
    assert sweeps.ring_parked(10) == 1
    assert step(run, "Y-1", "parked_reason") is None
    assert lab.bell.take() == [key]


def test_an_attempt_whose_stored_policy_cannot_be_read_is_ended_with_its_neighbours(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    lab.create(lab.flow.steps[0])
    for name in ("Y-1", "Y-2"):
        claim(lab, run, name)
        end_lease(run, name)
    stored = '{"execute_retry": {"unheard_of": 1}}'
    rows("UPDATE dexflows_step_execution SET options = %s, lease_until = '2000-01-01' WHERE number = 1", stored)
    assert rescue.rescue_expired(10) == 2
    assert steps(run) == {"Y-1": "BACKOFF", "Y-2": "BACKOFF"}


def test_an_attempt_whose_lease_was_renewed_after_the_look_goes_on(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    token = claim(lab, run, "Y-1")
    assert not lab.rescue(run, "Y-1")
    assert (step(run, "Y-1"), step(run, "Y-1", "token")) == ("RUNNING", token)
