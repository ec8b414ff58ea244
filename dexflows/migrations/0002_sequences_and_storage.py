"""Sequences of the history and of lock tickets, the legal rows of Step executions, and storage settings for churn."""

from django.db import migrations

CHURN = "SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0)"

# A function, since PostgreSQL reads and compiles a CHECK expression anew for every statement: a call compiles in no time
# and the body is kept for the session, which was a quarter of settling a Step.
LEGAL_STEP = """
CREATE FUNCTION dexflows_step_is_legal(
    p_number int, p_attempt int, p_state text, p_method text, p_token uuid, p_lease_until timestamptz,
    p_method_deadline timestamptz, p_worker text, p_due_at timestamptz, p_closed_at timestamptz
) RETURNS bool LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN p_number > 0 AND p_attempt >= 0 AND p_method IN ('wait_for', 'execute') AND CASE
        WHEN p_state = 'RUNNING'
            THEN num_nulls(p_due_at, p_closed_at) = 2
                AND num_nulls(p_token, p_lease_until, p_method_deadline, p_worker) = 0
        WHEN p_state IN ('QUEUED', 'BACKOFF', 'WAITING_FOR_LOCK')
            THEN p_due_at IS NOT NULL AND num_nulls(p_token, p_lease_until, p_closed_at) = 3
        WHEN p_state = 'WAITING'
            THEN num_nulls(p_token, p_lease_until, p_closed_at) = 3
        WHEN p_state IN ('COMPLETED', 'FAILED', 'CANCELED')
            THEN p_closed_at IS NOT NULL AND num_nulls(p_token, p_lease_until, p_due_at) = 3
        ELSE false
    END;
END
$$;
ALTER TABLE dexflows_step_execution ADD CONSTRAINT dexflows_step_state CHECK (dexflows_step_is_legal(
    number, attempt, state, method, token, lease_until, method_deadline, worker, due_at, closed_at
))
"""
ILLEGAL_STEP = """
ALTER TABLE dexflows_step_execution DROP CONSTRAINT dexflows_step_state;
DROP FUNCTION dexflows_step_is_legal
"""


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0001_initial")]

    operations = [
        migrations.RunSQL("CREATE SEQUENCE dexflows_event_seq", "DROP SEQUENCE dexflows_event_seq"),
        migrations.RunSQL("CREATE SEQUENCE dexflows_lock_ticket", "DROP SEQUENCE dexflows_lock_ticket"),
        migrations.RunSQL(LEGAL_STEP, ILLEGAL_STEP),
        *(
            migrations.RunSQL(f"ALTER TABLE {table} {CHURN}", migrations.RunSQL.noop)
            for table in (
                "dexflows_run",
                "dexflows_step_execution",
                "dexflows_attribute",
                "dexflows_lock_hold",
                "dexflows_lock_wait",
            )
        ),
    ]
