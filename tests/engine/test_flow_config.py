"""Changing the settings of a running run, and moving it to the workers of another queue."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from dexflows import FlowConfig, IdReusePolicy, RetryPolicy, StartFlowOptions, StepMovement, dead_end, force_fail, go_to
from dexflows.client import Client
from dexflows.engine.keys import StepKey
from dexflows.errors import FlowNotActiveOrNotFoundError, InvalidRequestError
from dexflows.states import StepDurability
from tests.engine.kit import Lab, Pause, in_thread, result, rows, step, steps, value, wait_until_blocked
from tests.engine.test_round_trips import trips
from tests.engine.test_step_locks import Holding
from tests.flows_lab import LabFlow, LabStep

SLOW = FlowConfig(worker_target="slow")


def queues(run: UUID) -> dict[str, str]:
    found = rows("SELECT step_type || '-' || number, queue FROM dexflows_step_execution WHERE run_id = %s", run)
    return dict(found)


def due(run: UUID) -> list[StepKey]:
    return [StepKey(*row) for row in rows("SELECT * FROM dexflows_sweep_due(100) WHERE run_id = %s", run)]


def test_settings_that_are_given_replace_those_of_the_run_and_the_others_stay(lab: Lab) -> None:
    lab.define(start=False)
    lab.start(options=StartFlowOptions(config_override=FlowConfig(worker_target="first")))
    lab.client.update_flow_config("flow", FlowConfig(step_durability=StepDurability.ASYNC))
    assert rows("SELECT config ->> 'step_durability', config ->> 'worker_target', queue FROM dexflows_run") == [
        ("ASYNC", "first", "first")
    ]
    assert trips(lambda: lab.client.update_flow_config("flow", SLOW)) == 1
    assert rows("SELECT config ->> 'step_durability', config ->> 'worker_target', queue FROM dexflows_run") == [
        ("ASYNC", "slow", "slow")
    ]
    told = rows("SELECT data::text FROM dexflows_event WHERE kind = 'FLOW_CONFIG_UPDATED' ORDER BY seq")
    assert told == [('{"step_durability": "ASYNC"}',), ('{"worker_target": "slow"}',)]


@pytest.mark.parametrize(
    "config", [FlowConfig(retention=60), FlowConfig(history_limit=10), FlowConfig(attribute_store_names=())]
)
def test_a_setting_that_would_have_no_effect_is_refused(lab: Lab, config: FlowConfig) -> None:
    lab.define(start=False)
    lab.start()
    with pytest.raises(InvalidRequestError, match="not available in this version"):
        lab.client.update_flow_config("flow", config)


def test_only_a_running_run_has_its_settings_changed(lab: Lab) -> None:
    lab.define(start=False)
    with pytest.raises(FlowNotActiveOrNotFoundError, match="there is no run of Flow 'flow'"):
        lab.client.update_flow_config("flow", SLOW)
    lab.start()
    lab.client.stop_flow("flow")
    with pytest.raises(FlowNotActiveOrNotFoundError, match=r"its run .* is CANCELED"):
        lab.client.update_flow_config("flow", SLOW)
    bad: Any = {"worker_target": "slow"}
    with pytest.raises(InvalidRequestError, match="takes a FlowConfig"):
        lab.client.update_flow_config("flow", bad)


def test_a_change_that_comes_while_the_run_closes_is_refused(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()
    closed = Pause()

    def close() -> None:
        with transaction.atomic():
            lab.client.stop_flow("flow")
            closed.here()

    closing = in_thread(close)
    with closed.reached():
        changing = in_thread(Client().update_flow_config, "flow", SLOW)
        wait_until_blocked("dexflows_update_config")
    result(closing)
    with pytest.raises(FlowNotActiveOrNotFoundError):
        result(changing)
    assert value("SELECT queue FROM dexflows_run") == "dexflows"


def test_open_steps_of_the_runs_queue_move_and_are_due_and_the_old_ring_finds_nothing(lab: Lab) -> None:
    own = LabStep("Own", worker_target="own")
    lab.define(LabStep("Y"), own)
    run = lab.start()
    (old,) = lab.bell.take()
    lab.create(own)
    lab.client.update_flow_config("flow", SLOW)
    assert queues(run) == {"Y-1": "slow", "Own-1": "own"}
    assert not lab.run(old), "a worker of the old queue does not take it"
    assert step(run, "Y-1") == "QUEUED"
    (key,) = due(run)
    assert key.queue == "slow"
    assert lab.run(key)


def test_what_backs_off_or_waits_for_a_lock_moves_and_keeps_its_place(lab: Lab) -> None:
    holding = Holding(lab, LabFlow.c.lock())
    waiter = LabStep("W", execute_lock_attributes=(LabFlow.c.lock(),))

    def fail(context: Any, input: str) -> Any:
        raise RuntimeError("boom")

    failing = LabStep("F", fail, execute_retry=RetryPolicy(initial_interval=1000, maximum_interval=1000))
    lab.define(holding.step, waiter, failing, start=False)
    run = lab.start()
    holding.begin()
    for key in lab.create(waiter, failing):
        lab.run(key)
    before = step(run, "F-1", "due_at")
    lab.client.update_flow_config("flow", SLOW)
    assert set(queues(run).values()) == {"slow"}
    assert step(run, "F-1", "due_at") == before
    assert [key.step_execution_id for key in due(run)] == ["W-1"]
    holding.end()
    assert [(key.step_execution_id, key.queue) for key in lab.bell.take()] == [("W-1", "slow")]


def test_a_parked_step_moves_to_workers_that_may_know_it(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start()
    rows("UPDATE dexflows_step_execution SET parked_reason = 'unknown'")
    lab.client.update_flow_config("flow", SLOW)
    assert [(key.step_execution_id, key.queue) for key in due(run)] == [("Y-1", "slow")]


def test_what_a_running_step_leads_to_goes_to_the_queue_that_its_run_has_then(lab: Lab) -> None:
    working = Pause()
    after = LabStep("After", execute_lock_attributes=(LabFlow.c.lock(),))
    lab.define(LabStep("Y", lambda context, input: (working.here(), go_to(after, ""))[1]), after)
    run = lab.start()
    (key,) = lab.bell.take()
    running = in_thread(lab.run, key)
    with working.reached():
        lab.client.update_flow_config("flow", SLOW)
    result(running)
    assert steps(run) == {"Y-1": "COMPLETED", "After-1": "QUEUED"}, "the worker of the old queue did not go on with it"
    assert [(key.step_execution_id, key.queue) for key in lab.bell.take()] == [("After-1", "slow")]


def test_a_running_step_that_fails_is_tried_again_in_the_new_queue(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        lab.client.update_flow_config("flow", SLOW)
        raise RuntimeError("boom")

    lab.define(LabStep("Y", work, execute_retry=RetryPolicy(initial_interval=0)))
    run = lab.start()
    lab.run_all()
    assert [(key.step_execution_id, key.queue) for key in due(run)] == [("Y-1", "slow")]


def test_a_step_with_a_queue_of_its_own_stays_there_and_those_after_it_follow_the_run(lab: Lab) -> None:
    own = LabStep("Own", lambda context, input: go_to(lab.flow.steps[1], ""), worker_target="own")
    lab.define(own, LabStep("Z", lambda context, input: dead_end()))
    run = lab.start()
    (key,) = lab.bell.take()
    assert key.queue == "own"
    lab.client.update_flow_config("flow", SLOW)
    assert lab.run(key)
    assert queues(run) == {"Own-1": "own", "Z-1": "slow"}
    assert steps(run)["Z-1"] == "QUEUED"


def test_a_retried_run_goes_on_with_the_settings_that_it_had(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda context, input: force_fail("no")))
    lab.start(options=StartFlowOptions(retry_policy=RetryPolicy(initial_interval=0, maximum_attempts=2)))
    lab.bell.take()
    lab.client.update_flow_config("flow", SLOW)
    (key,) = due(value("SELECT run_id FROM dexflows_run"))
    lab.run(key)
    assert rows("SELECT queue, config ->> 'worker_target' FROM dexflows_run ORDER BY run_number") == [
        ("slow", "slow"),
        ("slow", "slow"),
    ]
    assert [key.queue for key in lab.bell.take()] == ["slow"]


def test_calls_create_steps_in_the_queue_that_the_run_has(lab: Lab) -> None:
    leaf = LabStep("Leaf")
    lab.define(leaf, start=False)
    lab.start()
    lab.client.update_flow_config("flow", SLOW)
    assert [key.queue for key in lab.create(leaf, StepMovement.of(leaf, ""))] == ["slow", "slow"]


def test_the_settings_of_an_earlier_run_are_not_changed_nor_those_of_the_latest_in_its_stead(lab: Lab) -> None:
    lab.define(start=False)
    first = lab.start()
    lab.client.stop_flow("flow")
    lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING))
    with pytest.raises(FlowNotActiveOrNotFoundError, match=f"its run {first} is CANCELED"):
        lab.client.update_flow_config("flow", SLOW, run_id=str(first))
    assert rows("SELECT DISTINCT queue FROM dexflows_run") == [("dexflows",)]
