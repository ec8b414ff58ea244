"""Options keep what they were given, refuse nonsense, and survive being stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dexflows import (
    FlowConfig,
    RetryPolicy,
    RPCInvokeOptions,
    StartFlowOptions,
    StepDurability,
    StepMethod,
    StepOptions,
    StopFlowOptions,
)
from tests.language.flows import count, notes

FULL = StepOptions(
    wait_for_method_timeout=timedelta(minutes=1),
    execute_method_timeout=5,
    wait_for_retry=RetryPolicy(maximum_attempts=1),
    execute_retry=RetryPolicy(maximum_attempts=2),
    wait_for_lock_attributes=(count.lock(),),
    execute_lock_attributes=(notes.lock("a-b"), notes.lock_all()),
    wait_for_load_attribute_maps=(notes,),
    execute_load_attribute_maps=(notes,),
    wait_for_load_attribute_map_instances=(notes.load("x"),),
    execute_load_attribute_map_instances=(notes.load("y"),),
    execute_atomic=True,
    worker_target="slow",
)


def test_each_method_has_its_own_options() -> None:
    wait_for, execute = FULL.for_method(StepMethod.WAIT_FOR), FULL.for_method(StepMethod.EXECUTE)
    assert (wait_for.timeout, wait_for.retry.maximum_attempts) == (60.0, 1)
    assert (wait_for.locks, wait_for.load_maps, wait_for.load_instances) == (
        (count.lock(),),
        (notes,),
        (notes.load("x"),),
    )
    assert (execute.timeout, execute.retry.maximum_attempts) == (5.0, 2)
    assert [lock.key for lock in execute.locks] == ["notes/a-b", "notes/*"]
    assert execute.load_instances == (notes.load("y"),)
    assert StepOptions().for_method(StepMethod.EXECUTE).timeout == 7200


def test_step_options_survive_being_stored() -> None:
    definitions = {each.name: each for each in (count, notes)}
    stored = json.loads(json.dumps(FULL.to_json()))
    assert StepOptions.from_json(stored, definitions) == FULL
    assert StepOptions().to_json() == {}
    assert StepOptions.from_json({}, {}) == StepOptions()


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), "1"])
def test_a_timeout_must_be_a_positive_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ValueError, match="execute_method_timeout"):
        StepOptions(execute_method_timeout=timeout)


def test_a_list_of_locks_becomes_a_tuple() -> None:
    assert StepOptions(execute_lock_attributes=[count.lock()]).execute_lock_attributes == (count.lock(),)  # type: ignore[arg-type]
    assert RPCInvokeOptions(lock_attribute_map_instances=[notes.lock("a")]).lock_attribute_map_instances == (  # type: ignore[arg-type]
        notes.lock("a"),
    )


def test_a_flow_config_survives_being_stored_and_merges_what_is_set() -> None:
    config = FlowConfig(retention=timedelta(days=1), step_durability=StepDurability.ASYNC, attribute_store_names=())
    stored = json.loads(json.dumps(config.to_json()))
    assert stored == {"retention": 86400.0, "step_durability": "ASYNC", "attribute_store_names": []}
    assert FlowConfig.from_json(stored) == config
    merged = config.merged(FlowConfig(worker_target="fast", retention=5))
    assert merged == FlowConfig(
        retention=5, step_durability=StepDurability.ASYNC, attribute_store_names=(), worker_target="fast"
    )
    assert FlowConfig().to_json() == {}


@pytest.mark.parametrize(
    "wrong", [{"history_limit": 0}, {"history_limit": True}, {"retention": -1}, {"step_durability": "MAYBE"}]
)
def test_a_flow_config_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        FlowConfig(**wrong)


def test_initial_attributes_add_up_and_leave_the_first_options_alone() -> None:
    plain = StartFlowOptions(request_id="r")
    full = plain.with_attribute(count, 5).with_attribute(notes, "a", "text")
    assert plain.initial_attributes == ()
    assert [(each.definition, each.instance, each.value) for each in full.initial_attributes] == [
        (count, "", 5),
        (notes, "a", "text"),
    ]
    assert full.request_id == "r"
    for wrong in (lambda: plain.with_attribute(count, "a", 5), lambda: plain.with_attribute(notes, "a")):  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("queue", ["", "a\0", "a" * 256, 5])
def test_a_queue_must_be_a_name(queue: Any) -> None:
    with pytest.raises(ValueError, match="worker_target"):
        StepOptions(worker_target=queue)
    with pytest.raises(ValueError, match="worker_target"):
        FlowConfig(worker_target=queue)


@pytest.mark.parametrize("policy", ["", "TERMINATE", None])
def test_an_unknown_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ValueError, match="IdReusePolicy"):
        StartFlowOptions(id_reuse_policy=policy)


@pytest.mark.parametrize("wrong", [{"type": "PAUSE"}, {"reason": None}, {"reason": 5}])
def test_a_stop_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"StopType|reason"):
        StopFlowOptions(**wrong)


def test_no_duration_is_longer_than_timers_can_hold() -> None:
    with pytest.raises(ValueError, match="at most a century"):
        StepOptions(execute_method_timeout=1e10)
    with pytest.raises(ValueError, match="at most a century"):
        RetryPolicy(maximum_interval=1e300)


@pytest.mark.parametrize("name", ["wait_for_retry", "execute_retry", "execute_atomic"])
def test_a_step_option_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be (RetryPolicy|bool), not 3"):
        StepOptions(**{name: 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["timeout_handler_options", "retry_policy", "config_override", "ignore_already_started"]
)
def test_a_start_option_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .+, not 3"):
        StartFlowOptions(**{name: 3})  # type: ignore[arg-type]
