"""With durability ASYNC the commits of a run's Steps do not wait for the disk; those of other runs do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from dexflows import FlowConfig, StartFlowOptions, StepDurability, go_to, graceful_complete
from tests.engine.kit import Lab, rows
from tests.flows_lab import LabStep

WATCH = """
CREATE TABLE watched_commit (id bigserial, run_id uuid, state text, setting text);
CREATE FUNCTION watch_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO watched_commit (run_id, state, setting)
    VALUES (NEW.run_id, NEW.state, current_setting('synchronous_commit'));
    RETURN NEW;
END
$$;
CREATE TRIGGER watch_commit AFTER UPDATE ON dexflows_step_execution FOR EACH ROW EXECUTE FUNCTION watch_commit()
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
