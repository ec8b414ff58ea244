"""With durability ASYNC the commits of a run's Steps do not wait for the disk; those of other runs do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from dexflows import (
    Context,
    FlowConfig,
    StartFlowOptions,
    StepDecision,
    StepDurability,
    Timer,
    Wait,
    go_to,
    graceful_complete,
)
from tests.engine.kit import Lab, rows
from tests.flows_lab import LabStep, WaitingLabStep

WATCH = """
CREATE TABLE watched_commit (id bigserial, run_id uuid, state text, method text, setting text);
CREATE FUNCTION watch_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO watched_commit (run_id, state, method, setting)
    VALUES (NEW.run_id, NEW.state, NEW.method, current_setting('synchronous_commit'));
    RETURN NEW;
END
$$;
CREATE CONSTRAINT TRIGGER watch_commit AFTER UPDATE ON dexflows_step_execution DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION watch_commit()
"""
UNWATCH = """
DROP TRIGGER watch_commit ON dexflows_step_execution;
DROP FUNCTION watch_commit;
DROP TABLE watched_commit
"""


@pytest.fixture
def watched(transactional_db: None) -> Iterator[None]:
    """Write down how each change of a Step execution would be committed, in a session that waits for the disk."""
    with connection.cursor() as cursor:
        cursor.execute(WATCH)
        cursor.execute("SET synchronous_commit = on")
    yield
    with connection.cursor() as cursor:
        cursor.execute(UNWATCH)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(("durability", "setting"), [(None, "on"), (StepDurability.SYNC, "on"), ("ASYNC", "off")])
def test_a_runs_durability_decides_whether_its_commits_wait_for_the_disk(
    lab: Lab, durability: StepDurability | None, setting: str
) -> None:
    last = LabStep("Last", lambda context, input: graceful_complete("done"))
    lab.define(LabStep("First", lambda context, input: go_to(last, "")), last)
    lab.start(options=StartFlowOptions(config_override=FlowConfig(step_durability=durability)))
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 1).single_output(str) == "done"
    assert rows("SELECT DISTINCT setting FROM watched_commit WHERE state IN ('COMPLETED', 'FAILED')") == [(setting,)]
    assert rows("SHOW synchronous_commit") == [("on",)]


SYNC, ASYNC = StepDurability.SYNC, StepDurability.ASYNC


def settings(state: str, method: str = "execute") -> list[str]:
    """How changes into this state were committed, in order."""
    found = rows("SELECT setting FROM watched_commit WHERE state = %s AND method = %s ORDER BY id", state, method)
    return [setting for (setting,) in found]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("run", "options", "claimed", "settled"),
    [
        (None, {}, "on", "on"),
        (ASYNC, {}, "off", "off"),
        (None, {"execute_durability": ASYNC}, "off", "off"),
        (ASYNC, {"execute_durability": SYNC}, "on", "on"),
        (None, {"wait_for_durability": ASYNC}, "on", "on"),
    ],
)
def test_a_methods_own_durability_comes_before_the_runs(
    lab: Lab, run: StepDurability | None, options: dict[str, StepDurability], claimed: str, settled: str
) -> None:
    def fail(context: Context, input: str) -> StepDecision:
        raise RuntimeError("boom")

    lab.define(LabStep("Y", fail, **options))
    lab.start(options=StartFlowOptions(config_override=FlowConfig(step_durability=run)))
    lab.run_all()
    assert (settings("RUNNING"), settings("BACKOFF")) == ([claimed], [settled])


@pytest.mark.usefixtures("watched")
def test_wait_for_and_execute_each_have_a_durability(lab: Lab) -> None:
    timer = Wait.until(Timer.by_duration(0))
    lab.define(WaitingLabStep("Y", wait=lambda context, input: timer, wait_for_durability=ASYNC))
    lab.start()
    (key,) = lab.bell.take()
    lab.run(key)
    assert settings("RUNNING", "wait_for") == ["off"]
    assert settings("RUNNING") == ["on"], "a commit that also begins a durable method waits for the disk"
    assert settings("COMPLETED") == ["on"]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("first", "second", "setting"),
    [(ASYNC, ASYNC, "off"), (ASYNC, SYNC, "on"), (SYNC, ASYNC, "on"), (ASYNC, None, "on"), (None, ASYNC, "on")],
)
def test_a_commit_that_also_claims_is_as_durable_as_the_more_durable_of_both(
    lab: Lab, first: StepDurability | None, second: StepDurability | None, setting: str
) -> None:
    last = LabStep("Last", execute_durability=second)
    lab.define(LabStep("First", lambda context, input: go_to(last, ""), execute_durability=first), last)
    lab.start()
    lab.run_all()
    assert settings("COMPLETED")[0] == setting


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(("durability", "setting"), [(None, "on"), (SYNC, "on"), (ASYNC, "off")])
def test_beginning_to_wait_is_as_durable_as_the_methods_it_may_serve(
    lab: Lab, durability: StepDurability | None, setting: str
) -> None:
    timer = Wait.until(Timer.by_duration(100))
    both = {"wait_for_durability": durability, "execute_durability": durability}
    lab.define(WaitingLabStep("Y", wait=lambda context, input: timer, **both))
    lab.start()
    lab.run_all()
    assert settings("WAITING", "wait_for") == [setting]
