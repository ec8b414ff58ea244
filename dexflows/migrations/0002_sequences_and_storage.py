"""Sequences of the history and of lock tickets, the legal rows of Step executions, and storage settings for churn."""

from django.db import migrations

CHURN = "SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0)"

# One compact expression: PostgreSQL reads a CHECK anew for every statement, which counts on the hot path.
LEGAL_STEP = """
ALTER TABLE dexflows_step_execution ADD CONSTRAINT dexflows_step_state CHECK (
    CASE
        WHEN state = 'RUNNING'
            THEN num_nulls(due_at, closed_at) = 2 AND num_nulls(token, lease_until, method_deadline, worker) = 0
        WHEN state IN ('QUEUED', 'BACKOFF', 'WAITING_FOR_LOCK')
            THEN due_at IS NOT NULL AND num_nulls(token, lease_until, closed_at) = 3
        WHEN state = 'WAITING'
            THEN num_nulls(token, lease_until, closed_at) = 3
        WHEN state IN ('COMPLETED', 'FAILED', 'CANCELED')
            THEN closed_at IS NOT NULL AND num_nulls(token, lease_until, due_at) = 3
        ELSE false
    END AND method IN ('wait_for', 'execute') AND number > 0 AND attempt >= 0 AND rings >= 0
)
"""


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0001_initial")]

    operations = [
        migrations.RunSQL("CREATE SEQUENCE dexflows_event_seq", "DROP SEQUENCE dexflows_event_seq"),
        migrations.RunSQL("CREATE SEQUENCE dexflows_lock_ticket", "DROP SEQUENCE dexflows_lock_ticket"),
        migrations.RunSQL(
            LEGAL_STEP, "ALTER TABLE dexflows_step_execution DROP CONSTRAINT dexflows_step_state"
        ),
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
