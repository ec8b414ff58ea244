"""A run's life: a delayed start, and the ways in which it is stopped from outside."""

from math import inf
from typing import Any

import pytest
from django.db import transaction

from dexflows import RetryPolicy, StartFlowOptions, graceful_complete
from dexflows.client import Client
from dexflows.engine import claims, sweeps
from dexflows.engine.leases import InlineWorker
from dexflows.errors import FlowNotActiveOrNotFoundError
from dexflows.models import Run
from dexflows.options import StopFlowOptions
from dexflows.states import RunStatus, StopType
from dexflows.why import ReasonCode, why
from tests.engine.kit import Lab, in_thread, make_due, result, rows, step, steps, value, wait_until_blocked
from tests.flows_lab import LabStep


class ListeningWorker(InlineWorker):
    """Keeps what it was told about Steps that are due soon."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def due_in(self, seconds: float) -> None:
        self.told.append(seconds)


def test_a_delay_keeps_the_start_step_back_and_nothing_else(lab: Lab) -> None:
    lab.define(LabStep("Y", lambda context, input: graceful_complete(input)))
    run = lab.start(input="in", options=StartFlowOptions(start_delay=3600))
    assert lab.bell.take() == [], "nobody is rung for what is not due"
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("BACKOFF", 0)
    assert 3590 < value("SELECT extract(epoch FROM due_at - now()) FROM dexflows_step_execution") <= 3600
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1
    assert value("SELECT started_at <= now() FROM dexflows_run")
    (key,) = make_due(run)
    assert lab.run(key)
    assert lab.client.wait_for_flow("flow", 0).single_output(str) == "in"


def test_a_step_that_is_not_due_is_not_run_but_the_worker_is_told_when_it_is(lab: Lab) -> None:
    lab.worker = ListeningWorker()
    lab.define(LabStep("Y"))
    run = lab.start(options=StartFlowOptions(start_delay=100))
    assert not lab.run(lab.key(run, "Y-1"))
    assert step(run, "Y-1") == "BACKOFF"
    (seconds,) = lab.worker.told
    assert 90 < seconds <= 100


def test_a_step_that_has_backed_off_may_be_run_before_a_sweep_finds_it(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    run = lab.start(options=StartFlowOptions(start_delay=100))
    rows("UPDATE dexflows_step_execution SET due_at = now() - interval '1 s'")
    assert lab.run(lab.key(run, "Y-1"))
    assert (step(run, "Y-1"), step(run, "Y-1", "attempt")) == ("COMPLETED", 1)


@pytest.mark.parametrize(("delay", "rung"), [(0.5, True), (2.0, False)])
def test_a_delay_shorter_than_the_sweeps_pause_is_rung_so_that_a_worker_knows(
    lab: Lab, settings: Any, delay: float, rung: bool
) -> None:
    settings.DEXFLOWS = {**settings.DEXFLOWS, "SWEEP_SECONDS": 1.0}
    lab.define(LabStep("Y"))
    lab.start(options=StartFlowOptions(start_delay=delay))
    assert bool(lab.bell.take()) is rung


def test_a_delayed_start_says_so(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start(options=StartFlowOptions(start_delay=3600))
    run = Run.objects.get()
    (reason,) = why(run)
    assert reason.code is ReasonCode.DELAYED_START
    assert reason.until is not None
    assert reason.text == f"starts at {reason.until:%Y-%m-%d %H:%M:%S} UTC (delayed start)"


def test_a_delay_without_a_start_step_delays_nothing(lab: Lab) -> None:
    lab.define(start=False)
    lab.start(options=StartFlowOptions(start_delay=3600))
    assert lab.client.invoke_rpc(lab.flow.bump, "flow") == 1


@pytest.mark.parametrize("stop_type", StopType)
def test_a_stop_is_final_whatever_the_run_was_doing(lab: Lab, stop_type: StopType) -> None:
    """Also a stop as FAILED is no failure of the run itself, and is not retried."""
    lab.define(LabStep("Y"), LabStep("Z"))
    run = lab.start(options=StartFlowOptions(retry_policy=RetryPolicy(), start_delay=60, timeout=60))
    lab.create(lab.flow.steps[1])
    rows("INSERT INTO dexflows_timer_skip (run_id, step_type, number, timer) VALUES (%s, 'Y', 1, '0')", run)
    lab.client.stop_flow("flow", StopFlowOptions(type=stop_type, reason="enough"))
    status = {"CANCEL": "CANCELED", "TERMINATE": "TERMINATED", "FAIL": "FAILED"}[stop_type]
    assert rows("SELECT status, error_type, error_message, retried_by FROM dexflows_run") == [
        (status, f"STOPPED_{stop_type}", "enough", None)
    ]
    assert lab.client.wait_for_flow("flow", 0).status is RunStatus(status)
    assert rows("SELECT kind, data ->> 'error_type', data ->> 'error_message' FROM dexflows_event ORDER BY seq")[
        -1
    ] == (
        f"FLOW_{status}",
        f"STOPPED_{stop_type}",
        "enough",
    )
    assert steps(run) == {"Y-1": "CANCELED", "Z-1": "CANCELED"}
    assert rows("SELECT FROM dexflows_timer_skip") == []
    rows("UPDATE dexflows_run SET deadline = now() - interval '1 s'")
    assert sweeps.next_due().first == inf
    assert make_due(run) == []
    assert not lab.run(lab.key(run, "Y-1"))
    with pytest.raises(FlowNotActiveOrNotFoundError):
        Client().stop_flow("flow")


def test_a_run_closes_no_earlier_than_a_step_that_was_claimed_while_it_was_stopped(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start()
    with transaction.atomic():
        rows("SELECT FROM dexflows_step_execution FOR UPDATE")
        stopping = in_thread(lab.client.stop_flow, "flow")
        wait_until_blocked("dexflows_stop")
        assert claims.claim(lab.bell.take()[0], lab.worker)
    result(stopping)
    statement = """
        SELECT s.state, s.started_at <= s.closed_at, s.closed_at <= r.closed_at
        FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id)
    """
    assert rows(statement) == [("CANCELED", True, True)]
