"""Sequences of the history and of lock tickets, and storage settings for tables with much churn."""

from django.db import migrations

CHURN = "SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0)"


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0001_initial")]

    operations = [
        migrations.RunSQL("CREATE SEQUENCE dexflows_event_seq", "DROP SEQUENCE dexflows_event_seq"),
        migrations.RunSQL("CREATE SEQUENCE dexflows_lock_ticket", "DROP SEQUENCE dexflows_lock_ticket"),
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
