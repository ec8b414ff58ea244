"""Rows in bulk, made in the database: many runs with Steps, Attributes, events and locks of every state."""

from django.db import connection

RUNS = """
INSERT INTO dexflows_run (run_id, flow_id, run_number, flow_type, status, queue, input, started_at, closed_at)
SELECT dexflows_uuid7(at), 'order-' || n / 2, 1 + mod(n, 2), 'Type' || mod(n, 7), status, 'dexflows', '{"n": 1}', at,
       CASE WHEN status <> 'RUNNING' THEN at END
  FROM generate_series(1, %(count)s) AS n,
       LATERAL (SELECT timestamptz '2026-01-01' + n * interval '1 s' AS at,
                       CASE WHEN mod(n, 50) = 1 THEN 'RUNNING' WHEN mod(n, 500) = 2 THEN 'FAILED'
                            ELSE 'COMPLETED' END AS status
       ) AS made
"""

STEPS = """
INSERT INTO dexflows_step_execution (run_id, step_type, number, flow_type, queue, method, state, attempt, token, worker,
    lease_until, method_deadline, due_at, rings, failure, created_at, started_at, closed_at)
SELECT run_id, 'Step' || n, 1, flow_type, 'dexflows', 'execute', state, 1,
       CASE WHEN state = 'RUNNING' THEN gen_random_uuid() END, CASE WHEN state = 'RUNNING' THEN 'w1' END,
       CASE WHEN state = 'RUNNING' THEN started_at END, CASE WHEN state = 'RUNNING' THEN started_at END,
       CASE WHEN state IN ('BACKOFF', 'WAITING_FOR_LOCK') THEN started_at END, 0,
       CASE WHEN state = 'FAILED' THEN '{"error_type": "E"}'::jsonb END, started_at, started_at,
       CASE WHEN state IN ('COMPLETED', 'FAILED') THEN started_at END
  FROM dexflows_run,
       generate_series(1, 2) AS n,
       LATERAL (SELECT CASE WHEN n = 1 OR status = 'COMPLETED' THEN 'COMPLETED' WHEN status = 'FAILED' THEN 'FAILED'
                ELSE (ARRAY['BACKOFF', 'WAITING_FOR_LOCK', 'RUNNING'])[1 + mod(get_byte(uuid_send(run_id), 15), 3)]
                END AS state
       ) AS made
 WHERE flow_type LIKE 'Type_'
"""

REST = """
INSERT INTO dexflows_attribute (run_id, name, instance, entry, value, updated_at)
SELECT run_id, 'total', '', '', '{"amount": 12.50}', started_at FROM dexflows_run
 WHERE flow_type LIKE 'Type_';
INSERT INTO dexflows_event (run_id, seq, at, kind)
SELECT run_id, nextval('dexflows_event_seq'), started_at, 'FLOW_STARTED' FROM dexflows_run
 WHERE flow_type LIKE 'Type_';
INSERT INTO dexflows_channel_message (run_id, name, instance, seq, value, published_at)
SELECT run_id, 'approvals', '', nextval('dexflows_message_seq'), 'true', started_at FROM dexflows_run
 WHERE flow_type LIKE 'Type_';
INSERT INTO dexflows_lock_hold (run_id, key, step_type, number, token, acquired_at)
SELECT run_id, 'total', step_type, number, token, started_at FROM dexflows_step_execution
 WHERE state = 'RUNNING' AND flow_type LIKE 'Type_';
INSERT INTO dexflows_lock_wait (run_id, step_type, number, exclusive, shared, ticket, waiting_since)
SELECT run_id, step_type, number, '{total}', '{}', nextval('dexflows_lock_ticket'), started_at
  FROM dexflows_step_execution
 WHERE state = 'WAITING_FOR_LOCK' AND flow_type LIKE 'Type_';
"""

TABLES = ("run", "step_execution", "attribute", "event", "lock_hold", "lock_wait", "channel_message")


def add_runs(count: int) -> None:
    """Add runs, two to a Flow ID; one in fifty is running. Call it once."""
    with connection.cursor() as cursor:
        for statement in (RUNS, STEPS, REST):
            cursor.execute(statement, {"count": count})


def analyze() -> None:
    """Tell the planner how large the tables have become."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"ANALYZE dexflows_{table}")
