"""Waits, Channels, SubFlows, and what a run needs for its timeout and its retries."""

from importlib import import_module

from django.db import migrations, models
from django.db.models import F, Q

BEFORE = import_module("dexflows.migrations.0003_read_only_views")
CHURN = import_module("dexflows.migrations.0002_sequences_and_storage").CHURN
READ_ONLY, OF_RUN = BEFORE.READ_ONLY, BEFORE.OF_RUN

# A view holds the types of its columns fast, so all that show a Flow ID are made anew.
REMADE = [name for name in BEFORE.VIEWS if name != "dexflows_v1_event"]
VIEWS = {name: BEFORE.VIEWS[name] for name in REMADE} | {
    "dexflows_v1_run": f"""
SELECT run_id, flow_id, run_number, flow_type, status, queue, request_id, input, config, started_at, closed_at,
       error_type, error_message, deadline, retried_by, parent_run_id
  FROM dexflows_run {READ_ONLY}""",
    "dexflows_v1_step": f"""
SELECT record.run_id || ':' || record.step_type || '-' || record.number AS id,
       record.run_id, record.step_type, record.number, run.flow_id, record.flow_type, record.queue, record.method,
       record.state, record.attempt, record.worker, record.lease_until, record.due_at, record.parked_reason,
       record.from_step, record.input, record.options, record.locals, record.wait, record.waited, record.recovery,
       record.heartbeat, record.failure, record.output,
       record.created_at, record.first_attempt_at, record.started_at, record.closed_at
  FROM dexflows_step_execution AS record {OF_RUN}""",
    "dexflows_v1_message": f"""
SELECT record.run_id || ':' || jsonb_build_array(record.name, record.instance, record.seq) AS id,
       record.run_id, record.name, record.instance, record.seq, run.flow_id, run.flow_type, record.value,
       record.published_at
  FROM dexflows_channel_message AS record {OF_RUN}""",
    "dexflows_v1_sub_flow": f"""
SELECT link.run_id AS parent_run_id, link.step_type, link.number, link.condition, link.child_run_id,
       (SELECT run.flow_id FROM dexflows_run AS run WHERE run.run_id = link.run_id) AS parent_flow_id,
       (SELECT run.flow_id FROM dexflows_run AS run WHERE run.run_id = link.child_run_id) AS child_flow_id
  FROM dexflows_sub_flow AS link {READ_ONLY}""",
}
DROP = ";".join(f"DROP VIEW {name}" for name in REMADE)
DROP_NEW = ";".join(f"DROP VIEW {name}" for name in VIEWS)
CREATE = ";".join(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items())
CREATE_OLD = ";".join(f"CREATE VIEW {name} AS {BEFORE.VIEWS[name]}" for name in REMADE)

LEGAL = """
ALTER TABLE dexflows_step_execution ADD CONSTRAINT dexflows_step_waits CHECK (state <> 'WAITING' OR wait IS NOT NULL)
"""


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0005_long_event_kinds")]

    operations = [
        migrations.RunSQL(DROP, CREATE_OLD),
        migrations.AlterField("run", "flow_id", models.CharField(max_length=1024)),
        migrations.AddField("run", "deadline", models.DateTimeField(null=True)),
        migrations.AddField("run", "timeout", models.JSONField(null=True)),
        migrations.AddField("run", "retry", models.JSONField(null=True)),
        migrations.AddField("run", "retried_by", models.UUIDField(null=True)),
        migrations.AddField("run", "parent_run_id", models.UUIDField(null=True)),
        migrations.AddIndex(
            "run",
            models.Index(
                F("deadline"), name="dexflows_run_deadline", condition=Q(status="RUNNING", deadline__isnull=False)
            ),
        ),
        *(
            migrations.AddField("stepexecution", name, models.JSONField(null=True))
            for name in ("wait", "waited", "recovery", "heartbeat")
        ),
        migrations.RunSQL(LEGAL, "ALTER TABLE dexflows_step_execution DROP CONSTRAINT dexflows_step_waits"),
        migrations.RemoveIndex("stepexecution", "dexflows_step_due_at"),
        migrations.AddIndex(
            "stepexecution",
            models.Index(
                F("due_at"),
                name="dexflows_step_due_at",
                condition=Q(state__in=["QUEUED", "WAITING", "BACKOFF", "WAITING_FOR_LOCK"], due_at__isnull=False),
            ),
        ),
        migrations.RunSQL("CREATE SEQUENCE dexflows_message_seq", "DROP SEQUENCE dexflows_message_seq"),
        migrations.CreateModel(
            name="QueuedMessage",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "name", "instance", "seq", blank=True, editable=False, primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("name", models.CharField(max_length=255)),
                ("instance", models.TextField()),
                ("seq", models.BigIntegerField()),
                ("value", models.JSONField()),
                ("published_at", models.DateTimeField()),
            ],
            options={"db_table": "dexflows_channel_message"},
        ),
        migrations.CreateModel(
            name="TimerSkip",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "step_type", "number", "timer", blank=True, editable=False, primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("step_type", models.CharField(max_length=255)),
                ("number", models.IntegerField()),
                ("timer", models.CharField(max_length=300)),
            ],
            options={"db_table": "dexflows_timer_skip"},
        ),
        migrations.CreateModel(
            name="SubFlowLink",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "step_type", "number", "condition", blank=True, editable=False, primary_key=True, serialize=False)),
                ("run_id", models.UUIDField()),
                ("step_type", models.CharField(max_length=255)),
                ("number", models.IntegerField()),
                ("condition", models.IntegerField()),
                ("child_run_id", models.UUIDField()),
            ],
            options={
                "db_table": "dexflows_sub_flow",
                "indexes": [models.Index(fields=["child_run_id"], name="dexflows_sub_flow_child")],
            },
        ),
        *(
            migrations.RunSQL(f"ALTER TABLE {table} {CHURN}", migrations.RunSQL.noop)
            for table in ("dexflows_channel_message", "dexflows_sub_flow")
        ),
        migrations.RunSQL(CREATE, DROP_NEW),
        migrations.CreateModel(
            name="MessageRecord",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("run_id", models.UUIDField(verbose_name="run ID")),
                ("name", models.CharField(max_length=255, verbose_name="Channel")),
                ("instance", models.TextField()),
                ("seq", models.BigIntegerField(verbose_name="message ID")),
                ("flow_id", models.CharField(max_length=1024, verbose_name="Flow ID")),
                ("flow_type", models.CharField(max_length=255, verbose_name="Flow type")),
                ("value", models.JSONField()),
                ("published_at", models.DateTimeField()),
            ],
            options={"verbose_name": "message", "db_table": "dexflows_v1_message", "managed": False, "indexes": [], "constraints": []},
        ),
    ]
