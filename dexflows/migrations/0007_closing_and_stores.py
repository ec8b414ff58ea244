"""Runs that wait for their stores before they close, the outbox of these, and when a closed run may be removed."""

from importlib import import_module

from django.db import migrations, models
from django.db.models import F, Q

CHURN = import_module("dexflows.migrations.0002_sequences_and_storage").CHURN

# Runs that closed before had no retention of their own.
EXPIRE = "UPDATE dexflows_run SET expires_at = closed_at + interval '30 days' WHERE closed_at IS NOT NULL"


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0006_waits_and_channels")]

    operations = [
        migrations.AddField("run", "closing", models.JSONField(null=True)),
        migrations.AddField("run", "expires_at", models.DateTimeField(null=True)),
        migrations.RunSQL(EXPIRE, migrations.RunSQL.noop),
        migrations.AddIndex(
            "run", models.Index(F("expires_at"), name="dexflows_run_expires_at", condition=Q(expires_at__isnull=False))
        ),
        migrations.AddConstraint(
            "run",
            models.CheckConstraint(
                name="dexflows_run_closing", condition=Q(status="RUNNING") | Q(closing__isnull=True)
            ),
        ),
        migrations.RunSQL("CREATE SEQUENCE dexflows_store_seq", "DROP SEQUENCE dexflows_store_seq"),
        migrations.CreateModel(
            name="StoreWrite",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "store", "name", "instance", blank=True, editable=False, primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("store", models.CharField(max_length=255)),
                ("name", models.CharField(max_length=255)),
                ("instance", models.TextField(default="")),
                ("flow_id", models.CharField(max_length=1024)),
                ("seq", models.BigIntegerField()),
                ("marked_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(null=True)),
                ("attempts", models.IntegerField(default=0)),
                ("first_failed_at", models.DateTimeField(null=True)),
                ("error", models.TextField(null=True)),
                ("dropped_at", models.DateTimeField(null=True)),
                ("closing", models.BooleanField(default=False)),
            ],
            options={
                "db_table": "dexflows_store_write",
                "constraints": [
                    models.CheckConstraint(
                        name="dexflows_store_write_due",
                        condition=Q(dropped_at__isnull=True, due_at__isnull=False)
                        | Q(dropped_at__isnull=False, due_at__isnull=True),
                    )
                ],
                "indexes": [
                    models.Index(
                        F("store"), F("due_at"), name="dexflows_store_write_due_at", condition=Q(dropped_at__isnull=True)
                    ),
                    models.Index(F("flow_id"), F("store"), name="dexflows_store_write_flow"),
                ],
            },
        ),
        migrations.RunSQL(f"ALTER TABLE dexflows_store_write {CHURN}", migrations.RunSQL.noop),
    ]
