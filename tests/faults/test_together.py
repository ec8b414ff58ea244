"""Many Flows that close, fail or run at the same time."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import quantiles
from threading import Event

import pytest
from django.db import connection

from dexflows.client import Client
from dexflows.errors import FlowNotActiveOrNotFoundError, RpcLockConflictError
from tests.faults.conftest import assert_nothing_left, in_threads, query
from tests.faults.flows import RETRY_INTERVAL, chain_flow, count, fail_once_flow, slow_flow
from tests.stories.conftest import Story, StoryWorker

pytestmark = [pytest.mark.faults, pytest.mark.worker]

CLOSING = 300
FAILING = 2_000
RESTARTED = 500
RUNNING = "SELECT count(*) FROM dexflows_run WHERE status = 'RUNNING'"
LEDGER = """
CREATE TABLE backoff_ledger (delay float8);
CREATE FUNCTION note_backoff() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO backoff_ledger VALUES (extract(epoch FROM NEW.due_at - dexflows_now()));
    RETURN NULL;
END
$$;
CREATE TRIGGER note_backoff AFTER UPDATE ON dexflows_step_execution FOR EACH ROW
    WHEN (NEW.state = 'BACKOFF' AND OLD.state = 'RUNNING') EXECUTE FUNCTION note_backoff();
"""
NO_LEDGER = """
DROP TRIGGER note_backoff ON dexflows_step_execution; DROP FUNCTION note_backoff; DROP TABLE backoff_ledger;
"""
SPANS = """
SELECT extract(epoch FROM max(first_attempt_at) - min(first_attempt_at))::float8,
    extract(epoch FROM max(started_at) - min(started_at))::float8 FROM dexflows_step_execution
"""


@pytest.fixture
def backoffs(story: Story) -> Iterator[None]:
    """Note each delay that a failed attempt is given."""
    execute(LEDGER)
    yield
    execute(NO_LEDGER)


def execute(statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statements)


def test_an_rpc_that_was_answered_is_in_the_closed_flow(
    story: Story, start_workers: Callable[..., list[StoryWorker]]
) -> None:
    start_workers()
    answered = dict(in_threads(call_until_closed, range(CLOSING), 8))
    print(f"{sum(answered.values())} RPCs were answered")
    assert query("SELECT status, count(*) FROM dexflows_run GROUP BY 1") == [("COMPLETED", CLOSING)]
    found = {name: Client().get_attribute(name, count) for name in answered}
    assert found == answered
    assert sum(answered.values()) > CLOSING
    assert_nothing_left()


def call_until_closed(number: int) -> tuple[str, int]:
    """Call an RPC of a Flow until it is closed; returns the Flow ID and how many calls were answered."""
    name, client, answered = f"closing-{number}", Client(), 0
    client.start_flow(chain_flow, name, 20)
    while True:
        try:
            client.invoke_rpc(chain_flow.bump, name)
            answered += 1
        except RpcLockConflictError:
            continue
        except FlowNotActiveOrNotFoundError:
            return name, answered


def test_those_that_failed_together_do_not_retry_together(
    story: Story, backoffs: None, start_workers: Callable[..., list[StoryWorker]]
) -> None:
    in_threads(lambda number: Client().start_flow(fail_once_flow, f"failing-{number}"), range(FAILING), 4)
    start_workers()
    story.until(lambda: query("SELECT min(attempt) > 0 FROM dexflows_step_execution") == [(True,)], 120)
    connections = query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")[0][0]
    story.until(lambda: query(RUNNING) == [(0,)], 120)
    delays = [delay for (delay,) in query("SELECT delay FROM backoff_ledger")]
    ((failing, retrying),) = query(SPANS)
    twenty = quantiles(delays, n=20)
    print(f"90 % of the delays are from {twenty[0]:.1f} to {twenty[-1]:.1f} s; {connections} connections")
    print(f"the first attempts took {failing:.1f} s, the retries {retrying:.1f} s")
    assert len(delays) == FAILING
    assert twenty[-1] - twenty[0] > 0.2 * RETRY_INTERVAL
    assert max(delays) <= RETRY_INTERVAL
    assert connections < 30
    assert query("SELECT state, attempt, count(*) FROM dexflows_step_execution GROUP BY 1, 2") == [
        ("COMPLETED", 2, FAILING)
    ]


def test_rolling_restarts_lose_nothing(story: Story, start_workers: Callable[..., list[StoryWorker]]) -> None:
    settings = {"SHUTDOWN_GRACE_SECONDS": 8}
    workers = start_workers(2, settings=settings)
    in_threads(lambda number: Client().start_flow(slow_flow, f"slow-{number}", 3), range(RESTARTED), 2)
    pause, ends = Event(), []
    while query(RUNNING) != [(0,)] and len(ends) < 40:
        pause.wait(5)
        leaving = workers.pop(0)
        leaving.signal(signal.SIGTERM)
        workers += start_workers(1, settings=settings)
        ends.append(leaving.wait(20))
    print(f"{len(ends)} restarts")
    assert set(ends) == {0}
    story.until(lambda: query(RUNNING) == [(0,)], 60)
    assert query("SELECT value, count(*) FROM dexflows_attribute WHERE name = 'count' GROUP BY 1") in (
        [(3, RESTARTED)],
        [("3", RESTARTED)],
    )
    attempts = Counter(dict(query("SELECT attempt, count(*) FROM dexflows_step_execution GROUP BY 1")))
    print(f"Step executions by attempts: {dict(attempts)}")
    assert attempts == {1: 3 * RESTARTED}, "no attempt was lost with its worker; one that is given back is not counted"
    assert_nothing_left()
