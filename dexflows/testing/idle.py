"""Whether Flows have come to rest, and which of their Steps have not."""

from dexflows import sql
from dexflows.conf import conf

NAMED = 5
"""How many of the Steps that keep a test from becoming idle are named."""

BUSY = """
SELECT EXISTS (SELECT FROM dexflows_step_execution WHERE parked_reason IS NULL AND (
    state IN ('QUEUED', 'RUNNING', 'WAITING_FOR_LOCK') OR state IN ('WAITING', 'BACKOFF') AND due_at <= dexflows_now()))
"""
OPEN = """
SELECT s.step_type || '-' || s.number || ' of Flow ' || r.flow_id || ' (' || s.state || ', attempt ' || s.attempt || ')'
FROM dexflows_step_execution s JOIN dexflows_run r USING (run_id)
WHERE s.closed_at IS NULL AND s.parked_reason IS NULL AND (s.state = 'RUNNING' OR s.due_at IS NOT NULL)
ORDER BY s.due_at NULLS FIRST, s.created_at LIMIT %s
"""


class NotIdleError(AssertionError):
    """Flows went on and on where a test waited for them to come to rest."""

    def __init__(self, what: str) -> None:
        names = [name for (name,) in sql.call(conf().database, OPEN, (NAMED,))]
        super().__init__(f"{what}, and it goes on: {', '.join(names) or 'Flow timeouts'}")


def is_busy() -> bool:
    """Whether a Step runs or could run now."""
    return bool(sql.call(conf().database, BUSY, ())[0][0])
