"""The server's session dies at each write of a transition in turn: it happens as a whole, once, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection

from dexflows import Context, Timer, Wait, go_to, graceful_complete
from dexflows.engine import executor
from dexflows.errors import UnavailableError
from tests.engine.kit import Lab, end_lease, make_due, messages, move_clock, rows, steps, sweep, value
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

ch, c = LabFlow.ch, LabFlow.c
MOST_WRITES = 30
TABLES = ("run", "step_execution", "attribute", "channel_message", "event")
CRASH = """
CREATE SEQUENCE crash_writes;
CREATE TABLE crash_at (write bigint);
CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_write bigint := nextval('crash_writes');
BEGIN
    IF EXISTS (SELECT FROM crash_at WHERE write = v_write) THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NULL;
END
$$;
"""
TRIGGER = """
CREATE TRIGGER crash AFTER INSERT OR UPDATE OR DELETE ON dexflows_{0} FOR EACH ROW EXECUTE FUNCTION crash();
"""
NO_TRIGGER = "DROP TRIGGER IF EXISTS crash ON dexflows_{0};"
FORGET = "DROP FUNCTION IF EXISTS crash; DROP TABLE IF EXISTS crash_at; DROP SEQUENCE IF EXISTS crash_writes;"


@pytest.fixture
def crashing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the writes of the engine, of which one ends its session."""
    monkeypatch.setattr(executor, "SETTLE_PAUSES", (0.0, 0.0))
    rows(CRASH + "".join(TRIGGER.format(table) for table in TABLES))
    yield
    connection.close()
    rows("".join(NO_TRIGGER.format(table) for table in TABLES) + FORGET)


def crashes(act: Callable[[], object], write: int) -> bool:
    """Do something while that write, counted from here, ends the session; whether it came to that."""
    rows("DELETE FROM crash_at; SELECT setval('crash_writes', 1, false)")
    rows("INSERT INTO crash_at VALUES (%s)", write)
    with contextlib.suppress(DatabaseError, UnavailableError):
        act()
    connection.close()
    rows("DELETE FROM crash_at")
    return bool(value("SELECT last_value >= %s AND is_called FROM crash_writes", write))


def wait_for(context: Context, input: str) -> Wait:
    c.set(context, (c.get(context) or 0) + 1)
    return Wait.any_of(ch.for_one(), Timer.by_duration(3600))


def take(context: Context, input: str) -> Any:
    c.set(context, (c.get(context) or 0) + 10)
    return go_to(end, str(ch.results(context)))


end = LabStep("End", lambda context, input: graceful_complete(input))


def begin_to_wait(lab: Lab, flow_id: str) -> Callable[[], object]:
    return lab.run_all


def wait_for_what_is_there(lab: Lab, flow_id: str) -> Callable[[], object]:
    lab.client.publish(flow_id, ch, 7)
    return lab.run_all


def publish(lab: Lab, flow_id: str) -> Callable[[], object]:
    lab.run_all()
    return lambda: lab.client.publish(flow_id, ch, 7)


def fire_a_timer(lab: Lab, flow_id: str) -> Callable[[], object]:
    lab.run_all()
    move_clock(3600)
    lab.bell.rung.extend(sweep())
    return lab.run_all


@pytest.mark.parametrize("what", [begin_to_wait, wait_for_what_is_there, publish, fire_a_timer])
def test_a_transition_cut_off_at_any_write_is_done_once(
    lab: Lab, crashing: None, what: Callable[[Lab, str], Callable[[], object]]
) -> None:
    lab.define(WaitingLabStep("Take", take, wait_for), end)
    for write in range(1, MOST_WRITES):
        move_clock(0)
        run = lab.start(f"flow-{write}")
        came = crashes(what(lab, f"flow-{write}"), write)
        output = "[]" if what is fire_a_timer else "[7]"
        finish(lab, run, f"flow-{write}", output)
        if not came:
            break
    assert 3 < write < MOST_WRITES - 1, "some writes were cut off, and all were tried"


def finish(lab: Lab, run: UUID, flow_id: str, output: str) -> None:
    """What a fleet does after the crash: rescue and sweep; and a publisher that was told of a failure tries again."""
    for _ in range(2):
        for name, state in steps(run).items():
            if state == "RUNNING":
                end_lease(run, name)
                lab.rescue(run, name)
        lab.bell.rung.extend(make_due(run))
        lab.run_all()
        if output != "[]" and steps(run)["Take-1"] == "WAITING":
            lab.client.publish(flow_id, ch, 7)
            lab.run_all()
    assert lab.client.wait_for_flow(flow_id, 0).single_output(str) == output
    assert lab.client.get_attribute(flow_id, c) == 11
    assert steps(run) == {"Take-1": "COMPLETED", "End-1": "COMPLETED"}
    assert messages(run) == []
