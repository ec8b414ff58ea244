"""LCK-14: everything that locks rows at the same time locks them in one order, so the server never sees a deadlock."""

import threading
from typing import Any
from uuid import UUID

from dexflows import StepMovement, dead_end, go_to_many
from dexflows.errors import DexflowsError
from tests.engine.kit import DEADLINE, Lab, in_thread, result, rows, value
from tests.engine.test_step_locks import A, B, C, locking
from tests.flows_lab import LabFlow, LabStep

ROUNDS = 12


def deadlocks() -> int:
    """How many the server has broken in this database."""
    rows("SELECT pg_stat_clear_snapshot()")
    return int(value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


def test_renewals_sweeps_cancellations_settlements_writes_and_stops_never_deadlock(lab: Lab) -> None:
    def work(context: Any, input: str) -> Any:
        LabFlow.c.set(context, 1)
        LabFlow.a.set(context, "x")
        return dead_end()

    one, two = locking("One", A, C, handler=work), locking("Two", B, A, handler=work)
    fan = LabStep("Fan", lambda c, i: go_to_many(*(StepMovement.of(each, "") for each in (one, two, one, two))))
    lab.define(fan, one, two)
    runs: list[UUID] = [lab.start(f"flow-{number}") for number in range(ROUNDS)]
    before = deadlocks()
    ready = threading.Barrier(5)
    lab.flow.on_call = lambda context: lab.cancel(one)

    def run_steps() -> None:
        ready.wait(DEADLINE)
        for _ in range(3):
            lab.run_all()

    def renew_and_sweep() -> None:
        ready.wait(DEADLINE)
        for _ in range(ROUNDS):
            running = (
                "SELECT jsonb_agg(jsonb_build_array(run_id, step_type, number, token)) FROM dexflows_step_execution"
            )
            rows(f"SELECT dexflows_renew(coalesce(({running} WHERE state = 'RUNNING'), '[]'), 15)")
            waiting = "SELECT run_id, step_type, number FROM dexflows_step_execution WHERE state = 'WAITING_FOR_LOCK'"
            passed_over = f"(run_id, step_type, number) IN ({waiting} FOR UPDATE SKIP LOCKED)"
            rows(f"UPDATE dexflows_step_execution SET due_at = now() WHERE {passed_over}")
            lab.bell.ring(
                [
                    lab.key(run, f"{name}-{number}")
                    for run, _, name, number, _ in rows("SELECT * FROM dexflows_sweep_due(50)")
                ]
            )

    def act(index: int) -> None:
        ready.wait(DEADLINE)
        for number in range(ROUNDS):
            try:
                lab.client.set_attributes(f"flow-{number}", (LabFlow.c, 1), (LabFlow.a, "y"), (LabFlow.b, "z"))
                lab.client.invoke_rpc(lab.flow.call, f"flow-{number}")
                if index:
                    lab.client.stop_flow(f"flow-{number}")
            except DexflowsError:
                continue

    racing = [
        in_thread(run_steps),
        in_thread(run_steps),
        in_thread(renew_and_sweep),
        in_thread(act, 0),
        in_thread(act, 1),
    ]
    for each in racing:
        result(each)
    assert deadlocks() == before
    assert value("SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'") == 0
    assert value("SELECT count(*) FROM dexflows_lock_hold") == 0
    assert value("SELECT count(*) FROM dexflows_lock_wait") == 0
    assert len(runs) == ROUNDS
