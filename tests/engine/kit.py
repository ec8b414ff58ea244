"""What the engine's tests are made of: a doorbell that collects, threads with connections, a look at rows."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, connections

from dexflows import RetryPolicy, RPCResult, Step, StepMovement
from dexflows.client import Client
from dexflows.engine import doorbell, executor, transitions
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.engine.outcomes import Raised, transition
from dexflows.options import StartFlowOptions
from dexflows.registry import registry
from tests.flows_lab import LabFlow

T = TypeVar("T")
DEADLINE = 10.0


class CollectingDoorbell:
    """Keeps what was rung, for the test to run or to count."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.rung: list[StepKey] = []

    def ring(self, steps: Sequence[StepKey]) -> None:
        with self._changed:
            self.rung.extend(steps)
            self._changed.notify_all()

    def names(self) -> list[str]:
        """What was rung and not taken yet, as `StepType-N`."""
        with self._changed:
            return [key.step_execution_id for key in self.rung]

    def take(self) -> list[StepKey]:
        """What was rung since the last taking."""
        with self._changed:
            taken, self.rung = self.rung, []
            return taken

    def wait_for(self, name: str) -> StepKey:
        """Wait until this Step execution is rung, and take it."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: [key for key in self.rung if key.step_execution_id == name], DEADLINE
            )
            assert found, f"{name} was not rung, only {[key.step_execution_id for key in self.rung]}"
            self.rung.remove(found[0])
            return found[0]


class Lab:
    """One Flow of one test, its client and its doorbell."""

    def __init__(self, bell: CollectingDoorbell) -> None:
        self.bell = bell
        self.client = Client()
        self.worker = InlineWorker()
        self.flow = LabFlow()

    def define(self, *steps: Step[Any], start: bool = True) -> LabFlow:
        """Register the Flow with these Steps, the first of which starts it."""
        self.flow = registry.register(LabFlow(*steps, start=start))
        return self.flow

    def start(self, flow_id: str = "flow", input: str = "", options: StartFlowOptions | None = None) -> UUID:
        return UUID(self.client.start_flow(self.flow, flow_id, input, options))

    def run(self, key: StepKey) -> bool:
        return executor.run(key, self.worker)

    def run_all(self) -> None:
        """Run what is rung until nothing is."""
        while keys := self.bell.take():
            for key in keys:
                self.run(key)

    def create(self, *movements: Step[Any] | StepMovement, flow_id: str = "flow") -> list[StepKey]:
        """Create Step executions by an RPC, and take their rings."""
        named = tuple(each if isinstance(each, StepMovement) else StepMovement.of(each, "") for each in movements)
        self.flow.on_call = lambda context: RPCResult("created", next_steps=named)
        self.client.invoke_rpc(self.flow.call, flow_id)
        return self.bell.take()

    def cancel(self, *canceled: Step[Any]) -> RPCResult[str]:
        """What an RPC returns to cancel these Steps."""
        return RPCResult("canceled", canceling_steps=canceled)

    def cancel_all(self, *canceled: Step[Any], flow_id: str = "flow") -> None:
        """Cancel the open executions of these Steps by an RPC."""
        self.flow.on_call = lambda context: self.cancel(*canceled)
        self.client.invoke_rpc(self.flow.call, flow_id)

    def rescue(self, run_id: UUID, name: str) -> bool:
        """Settle an attempt whose lease has ended the way a rescuer does; True when that landed."""
        key = self.key(run_id, name)
        token = step(run_id, name, "token")
        payload = transition(
            Raised(error_type="WorkerLost", detail="the lease ended"),
            attempt=step(run_id, name, "attempt"),
            elapsed=0.0,
            retry=RetryPolicy(),
        )
        settlement = transitions.settle(key, token, payload | {"release": True, "expired": True})
        doorbell.ring_after_commit(settlement.rings)
        return settlement.landed

    def key(self, run_id: UUID, name: str, queue: str = "dexflows") -> StepKey:
        step_type, _, number = name.rpartition("-")
        return StepKey(run_id, "LabFlow", step_type, int(number), queue)


def rows(statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """What this thread's connection reads."""
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return list(cursor.fetchall()) if cursor.description else []


def value(statement: str, *arguments: Any) -> Any:
    """The one value of a statement."""
    return rows(statement, *arguments)[0][0]


def step(run_id: UUID, name: str, column: str = "state") -> Any:
    """One column of a Step execution."""
    step_type, _, number = name.rpartition("-")
    return value(
        f"SELECT {column} FROM dexflows_step_execution WHERE run_id = %s AND step_type = %s AND number = %s",
        run_id,
        step_type,
        int(number),
    )


def steps(run_id: UUID) -> dict[str, str]:
    """The states of all Step executions of a run."""
    found = rows(
        "SELECT step_type || '-' || number, state FROM dexflows_step_execution WHERE run_id = %s ORDER BY 1", run_id
    )
    return dict(found)


def holds(run_id: UUID) -> dict[str, str]:
    """Lock keys and their holders."""
    found = rows("SELECT key, step_type || '-' || number FROM dexflows_lock_hold WHERE run_id = %s", run_id)
    return dict(found)


def waiters(run_id: UUID) -> list[str]:
    """Who waits for locks, first come first."""
    found = rows("SELECT step_type || '-' || number FROM dexflows_lock_wait WHERE run_id = %s ORDER BY ticket", run_id)
    return [name for (name,) in found]


def end_lease(run_id: UUID, name: str) -> None:
    """Let the lease of a running attempt end."""
    step_type, _, number = name.rpartition("-")
    rows(
        "UPDATE dexflows_step_execution SET lease_until = now() - interval '1 s' "
        "WHERE run_id = %s AND step_type = %s AND number = %s",
        run_id,
        step_type,
        int(number),
    )


def make_due(run_id: UUID) -> list[StepKey]:
    """Let every backoff and every missed ring of a run be due, sweep, and return what the sweep gives out."""
    rows(
        "UPDATE dexflows_step_execution SET due_at = now() - interval '1 s' WHERE run_id = %s AND due_at IS NOT NULL",
        run_id,
    )
    found = rows("SELECT * FROM dexflows_sweep_due(1000) WHERE run_id = %s", run_id)
    return [StepKey(*row) for row in found]


def messages(run_id: UUID, name: str = "ch", instance: str = "") -> list[Any]:
    """The values that are queued in a Channel, oldest first."""
    found = rows(
        "SELECT value FROM dexflows_channel_message WHERE run_id = %s AND name = %s AND instance = %s ORDER BY seq",
        run_id,
        name,
        instance,
    )
    return [json.loads(each) if isinstance(each, str) else each for (each,) in found]


CLOCK = """CREATE OR REPLACE FUNCTION dexflows_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp() + interval '%s s'
$$"""


def move_clock(seconds: float) -> None:
    """Set the engine's clock so many seconds ahead of the server's, until the test ends."""
    rows(CLOCK % seconds)


def sweep() -> list[StepKey]:
    """What a sweep gives out."""
    return [StepKey(*row) for row in rows("SELECT * FROM dexflows_sweep_due(1000)")]


def in_thread(function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Run a function in a thread with database connections of its own."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the test
            future.set_exception(error)
        finally:
            with contextlib.suppress(Exception):
                connections.close_all()

    threading.Thread(target=work, daemon=True).start()
    return future


def result(future: Future[T]) -> T:
    """What the thread returned, or what it raised."""
    return future.result(DEADLINE)


class Pause:
    """A place in a handler where it stops until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def here(self) -> None:
        self._reached.set()
        assert self._released.wait(DEADLINE), "nobody let the handler go on"

    def wait(self) -> None:
        """Wait until the handler has come here."""
        assert self._reached.wait(DEADLINE), "the handler did not come here"

    def release(self) -> None:
        self._released.set()

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Within the block the handler stands still here."""
        self.wait()
        try:
            yield
        finally:
            self.release()


def wait_until_blocked(statement_part: str) -> None:
    """Wait until some session waits for a lock in a statement that contains this text."""
    wait_until(
        lambda: (
            value(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s "
                "AND pid <> pg_backend_pid() AND datname = current_database()",
                f"%{statement_part}%",
            )
            > 0
        ),
        f"no session waits in {statement_part}",
    )


def wait_until(condition: Callable[[], bool], message: str) -> None:
    """Ask the database until a condition holds; each question lets 5 ms pass on the server."""
    for _ in range(int(DEADLINE / 0.005)):
        if condition():
            return
        rows("SELECT pg_stat_clear_snapshot()")
        rows("SELECT pg_sleep(0.005)")
    raise AssertionError(message)
