"""The read-only SQL views `dexflows_v1_*`, the models that read them, and the indexes of lists that people look at.

The views are the public way to read Flow state in SQL: columns are only added within `v1`, and none of them can be
written through. Grant a role SELECT on the views alone and it needs no right on the tables.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

# A view over one table can be written through. A second source forbids that and costs the planner nothing.
READ_ONLY = "CROSS JOIN (SELECT) AS read_only"

OF_RUN = "LEFT JOIN dexflows_run AS run ON run.run_id = record.run_id " + READ_ONLY

VIEWS = {
    "dexflows_v1_run": f"""
SELECT run_id, flow_id, run_number, flow_type, status, queue, request_id, input, config, started_at, closed_at,
       error_type, error_message
  FROM dexflows_run {READ_ONLY}""",
    "dexflows_v1_step": f"""
SELECT record.run_id || ':' || record.step_type || '-' || record.number AS id,
       record.run_id, record.step_type, record.number, run.flow_id, record.flow_type, record.queue, record.method,
       record.state, record.attempt, record.worker, record.lease_until, record.due_at, record.parked_reason,
       record.from_step, record.input, record.options, record.locals, record.failure, record.output,
       record.created_at, record.first_attempt_at, record.started_at, record.closed_at
  FROM dexflows_step_execution AS record {OF_RUN}""",
    "dexflows_v1_attribute": f"""
SELECT record.run_id || ':' || jsonb_build_array(record.name, record.instance, record.entry) AS id,
       record.run_id, record.name, record.instance, record.entry, run.flow_id, run.flow_type, record.value,
       record.updated_at
  FROM dexflows_attribute AS record {OF_RUN}""",
    "dexflows_v1_event": f"""
SELECT run_id || ':' || seq AS id, run_id, seq, at, kind, step, data
  FROM dexflows_event {READ_ONLY}""",
    # Looked up for the rows that are shown only: the list is sorted without an index, and a join would come before that.
    "dexflows_v1_lock_holder": f"""
SELECT run_id || ':' || key AS id, run_id, key, map_key, step_type, number,
       (SELECT run.flow_id FROM dexflows_run AS run WHERE run.run_id = hold.run_id) AS flow_id,
       (SELECT run.flow_type FROM dexflows_run AS run WHERE run.run_id = hold.run_id) AS flow_type,
       acquired_at
  FROM dexflows_lock_hold AS hold {READ_ONLY}""",
    "dexflows_v1_lock_waiter": f"""
SELECT record.run_id || ':' || record.step_type || '-' || record.number AS id,
       record.run_id, record.step_type, record.number, record.exclusive, record.shared, record.ticket, run.flow_id,
       run.flow_type, record.waiting_since
  FROM dexflows_lock_wait AS record {OF_RUN}""",
}

# The engine uses none of these. Rows of the common end, COMPLETED, stay out of them where a list can do without.
INDEXES = {
    "dexflows_run_flow_prefix": """ON dexflows_run (flow_id COLLATE "C", (run_number * -1))""",
    "dexflows_run_by_type": "ON dexflows_run (flow_type, started_at, run_id)",
    "dexflows_run_by_status": "ON dexflows_run (status, started_at, run_id) WHERE status <> 'COMPLETED'",
    "dexflows_step_unhappy": """ON dexflows_step_execution (run_id, step_type, number)
WHERE state IN ('FAILED', 'CANCELED')""",
    "dexflows_lock_wait_longest": "ON dexflows_lock_wait (waiting_since, ticket)",
}


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0002_sequences_and_storage")]

    operations = [
        *(migrations.RunSQL(f"CREATE INDEX {name} {target}", f"DROP INDEX {name}") for name, target in INDEXES.items()),
        *(migrations.RunSQL(f"CREATE VIEW {name} AS {query}", f"DROP VIEW {name}") for name, query in VIEWS.items()),
        migrations.CreateModel(
            name="StepRecord",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("step_type", models.CharField(max_length=255)),
                ("number", models.PositiveIntegerField()),
                ("flow_id", models.CharField(max_length=255, verbose_name="Flow ID")),
                ("flow_type", models.CharField(max_length=255, verbose_name="Flow type")),
                ("queue", models.CharField(max_length=255)),
                ("method", models.CharField(max_length=8)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("QUEUED", "QUEUED"),
                            ("RUNNING", "RUNNING"),
                            ("WAITING", "WAITING"),
                            ("WAITING_FOR_LOCK", "WAITING_FOR_LOCK"),
                            ("BACKOFF", "BACKOFF"),
                            ("COMPLETED", "COMPLETED"),
                            ("FAILED", "FAILED"),
                            ("CANCELED", "CANCELED"),
                        ],
                        max_length=16,
                    ),
                ),
                ("attempt", models.PositiveIntegerField()),
                ("worker", models.TextField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("parked_reason", models.TextField(null=True)),
                ("from_step", models.CharField(max_length=300, null=True)),
                ("input", models.JSONField(null=True)),
                ("options", models.JSONField(null=True)),
                ("locals", models.JSONField(null=True)),
                ("failure", models.JSONField(null=True)),
                ("output", models.JSONField(null=True)),
                ("created_at", models.DateTimeField()),
                ("first_attempt_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "Step execution",
                "db_table": "dexflows_v1_step",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="AttributeRecord",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("name", models.CharField(max_length=255)),
                ("instance", models.TextField()),
                ("entry", models.TextField()),
                ("flow_id", models.CharField(max_length=255, verbose_name="Flow ID")),
                ("flow_type", models.CharField(max_length=255, verbose_name="Flow type")),
                ("value", models.JSONField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "Attribute",
                "db_table": "dexflows_v1_attribute",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="EventRecord",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=32)),
                ("step", models.CharField(max_length=300, null=True)),
                ("data", models.JSONField(null=True)),
            ],
            options={
                "verbose_name": "event",
                "db_table": "dexflows_v1_event",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="LockHolder",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("key", models.TextField(verbose_name="lock")),
                ("map_key", models.TextField(null=True)),
                ("step_type", models.CharField(max_length=255)),
                ("number", models.PositiveIntegerField()),
                ("flow_id", models.CharField(max_length=255, verbose_name="Flow ID")),
                ("flow_type", models.CharField(max_length=255, verbose_name="Flow type")),
                ("acquired_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "lock holder",
                "db_table": "dexflows_v1_lock_holder",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="LockWaiter",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("step_type", models.CharField(max_length=255)),
                ("number", models.PositiveIntegerField()),
                ("exclusive", ArrayField(base_field=models.TextField(), size=None, verbose_name="locks")),
                ("shared", ArrayField(base_field=models.TextField(), size=None)),
                ("ticket", models.BigIntegerField()),
                ("flow_id", models.CharField(max_length=255, verbose_name="Flow ID")),
                ("flow_type", models.CharField(max_length=255, verbose_name="Flow type")),
                ("waiting_since", models.DateTimeField()),
            ],
            options={
                "verbose_name": "lock waiter",
                "db_table": "dexflows_v1_lock_waiter",
                "managed": False,
                "indexes": [],
                "constraints": [],
            },
        ),
    ]
