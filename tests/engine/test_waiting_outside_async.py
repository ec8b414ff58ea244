"""Waiting from outside with the AsyncClient: no thread for a waiter, and nothing left of a canceled one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction

from dexflows import AsyncClient, LongPollTimeoutError, StepExecutionId, WaitForStepCompletionOptions
from dexflows.client import Client
from dexflows.watching import watcher
from tests.engine.kit import DEADLINE, Lab, Pause, in_thread, result, rows, wait_until, wait_until_blocked
from tests.engine.test_waiting_outside import equal_to, sessions
from tests.flows_lab import LabFlow, LabStep

PATIENT = WaitForStepCompletionOptions(request_timeout=60)


@pytest.fixture(autouse=True)
def nobody_is_left_waiting() -> Iterator[None]:
    yield
    wait_until(lambda: watcher.waiting == 0 and sessions() == 0, "a waiter or a session is left")


async def until(condition: Callable[[], bool], message: str) -> None:
    """Ask again and again until a condition holds, and let the tasks go on meanwhile."""
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


def run(use: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    return async_to_sync(use)(AsyncClient())


def test_each_wait_can_be_awaited(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start()

    async def use(client: AsyncClient) -> list[Any]:
        waits = [
            asyncio.ensure_future(wait)
            for wait in (
                client.wait_for_step_completion("flow", StepExecutionId("Y")),
                client.wait_for_attribute_match("flow", LabFlow.note, equal_to("x")),
                client.wait_for_flow("flow"),
            )
        ]
        await until(lambda: watcher.waiting == 3, "not all are waiting")
        await sync_to_async(lab.run_all)()
        await client.set_attribute("flow", LabFlow.note, "x")
        found = [await waits[0], await waits[1]]
        await client.stop_flow("flow")
        return [*found, (await waits[2]).status]

    assert run(use) == [None, "x", "CANCELED"]


def test_200_waiting_tasks_hold_one_session_and_no_thread_of_their_own(lab: Lab) -> None:
    lab.define(LabStep("Y"))
    lab.start()

    async def use(client: AsyncClient) -> set[Any]:
        before = threading.active_count()
        waits = [asyncio.ensure_future(client.wait_for_step_completion("flow", StepExecutionId("Y"), PATIENT))]
        waits += [asyncio.ensure_future(client.wait_for_flow("flow", 60)) for _ in range(199)]
        await until(lambda: watcher.waiting == 200, "not all are waiting")
        assert threading.active_count() <= before + 1
        assert await sync_to_async(sessions)() <= 1
        assert await sync_to_async(sessions)("idle in transaction%") == 0
        await sync_to_async(lab.run_all)()
        await client.stop_flow("flow")
        first, *others = await asyncio.gather(*waits)
        assert first is None
        return {each.status for each in others}

    assert run(use) == {"CANCELED"}


def test_a_canceled_task_is_not_looked_for_any_more(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    async def use(client: AsyncClient) -> None:
        waits = [asyncio.ensure_future(client.wait_for_flow("flow")) for _ in range(3)]
        await until(lambda: watcher.waiting == 3, "not all are waiting")
        waits[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits[0]
        await until(lambda: watcher.waiting == 2, "the canceled one is still looked for")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waits[1], 0.01)
        await until(lambda: watcher.waiting == 1, "the one that ran out of time is still looked for")
        await client.stop_flow("flow")
        assert (await waits[2]).status == "CANCELED"

    run(use)


def test_a_task_that_is_canceled_while_its_look_runs_is_forgotten_too(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()
    locked = Pause()

    def lock() -> None:
        with transaction.atomic():
            rows("LOCK TABLE dexflows_run IN ACCESS EXCLUSIVE MODE")
            locked.here()

    locking = in_thread(lock)
    locked.wait()

    async def use(client: AsyncClient) -> None:
        waiting = asyncio.ensure_future(client.wait_for_flow("flow"))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, in_own_session, wait_until_blocked, "dexflows_run")
        waiting.cancel()
        await asyncio.wait((waiting,), timeout=0.05)
        locked.release()
        with pytest.raises(asyncio.CancelledError) as canceled:
            await waiting
        await until(lambda: watcher.waiting == 0, f"somebody waits, whom only {canceled} still knows")

    run(use)
    result(locking)


def in_own_session(function: Callable[..., None], *arguments: Any) -> None:
    result(in_thread(function, *arguments))


def test_the_time_limit_of_a_task_is_its_own(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    async def use(client: AsyncClient) -> None:
        long = asyncio.ensure_future(client.wait_for_flow("flow", DEADLINE))
        with pytest.raises(LongPollTimeoutError):
            await client.wait_for_flow("flow", 0.05)
        await client.stop_flow("flow")
        assert (await long).status == "CANCELED"

    run(use)


def test_inside_a_transaction_of_synchronous_code_a_task_sees_what_is_not_committed(lab: Lab) -> None:
    lab.define(start=False)

    async def use(client: AsyncClient) -> None:
        assert await client.wait_for_attribute_match("flow", LabFlow.c, equal_to(0)) == 0
        with pytest.raises(LongPollTimeoutError):
            await client.wait_for_flow("flow", 0.05)

    with transaction.atomic():
        lab.start()
        run(use)
        transaction.set_rollback(True)
    assert rows("SELECT FROM dexflows_run") == []


def test_a_waiting_task_does_not_close_the_connection_under_a_transaction_of_another(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    async def use(client: AsyncClient) -> None:
        waiting = asyncio.ensure_future(client.wait_for_flow("flow", 0.2))
        await until(lambda: watcher.waiting == 1, "nobody is waiting")
        atomic = transaction.atomic()
        await sync_to_async(atomic.__enter__)()
        await sync_to_async(rows)("INSERT INTO auth_group (name) VALUES ('kept')")
        with pytest.raises(LongPollTimeoutError):
            await waiting
        await sync_to_async(atomic.__exit__)(None, None, None)

    run(use)
    assert rows("SELECT name FROM auth_group") == [("kept",)]


def test_a_loop_that_ends_leaves_nobody_waiting(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()

    async def use() -> None:
        task = asyncio.ensure_future(AsyncClient().wait_for_flow("flow"))
        await until(lambda: watcher.waiting == 1, "nobody is waiting")
        await sync_to_async(connections.close_all)()
        assert not task.done()

    asyncio.run(use())
    assert watcher.waiting == 0
    Client().stop_flow("flow")
