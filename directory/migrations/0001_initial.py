"""The schema table, and the views that the read-only models ``Partition`` and ``CustomerProfile`` read."""

from django.db import migrations, models

# One row for each bucket of the directory's latest run. The run is looked up once per query; profiles are counted
# only for the rows that leave the query, after its LIMIT.
PARTITION_VIEW = """
CREATE VIEW directory_partition_view AS
SELECT bucket.instance,
       (SELECT count(*)::integer FROM jsonb_object_keys(bucket.value)) AS profiles,
       bucket.updated_at
  FROM dexflows_attribute AS bucket
 WHERE bucket.run_id = (SELECT run.run_id
                          FROM dexflows_run AS run
                         WHERE run.flow_id = 'customer-directory'
                         ORDER BY run.run_number DESC
                         LIMIT 1)
   AND bucket.name = 'customer_profiles_by_email_partition'
   AND bucket.entry = ''
"""

# One row for each profile. Buckets are opened one after the other in the order of their names, so a LIMIT ends early.
PROFILE_VIEW = """
CREATE VIEW directory_customer_profile_view AS
SELECT profile.key AS email,
       profile.value ->> 'fullName' AS full_name,
       profile.value ->> 'companyName' AS company_name,
       profile.value ->> 'customerTier' AS customer_tier,
       bucket.instance AS partition
  FROM dexflows_attribute AS bucket
 CROSS JOIN LATERAL jsonb_each(bucket.value) AS profile
 WHERE bucket.run_id = (SELECT run.run_id
                          FROM dexflows_run AS run
                         WHERE run.flow_id = 'customer-directory'
                         ORDER BY run.run_number DESC
                         LIMIT 1)
   AND bucket.name = 'customer_profiles_by_email_partition'
   AND bucket.entry = ''
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = [("dexflows", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="DirectorySchema",
            fields=[
                (
                    "id",
                    models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False),
                ),
                ("partition_count", models.PositiveIntegerField()),
                ("algorithm", models.CharField(max_length=100)),
                ("recorded_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="directory_schema_is_one_row")
                ]
            },
        ),
        migrations.CreateModel(
            name="Partition",
            fields=[
                ("instance", models.TextField(primary_key=True, serialize=False)),
                ("profiles", models.IntegerField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={"db_table": "directory_partition_view", "ordering": ["instance"], "managed": False},
        ),
        migrations.CreateModel(
            name="CustomerProfile",
            fields=[
                ("email", models.TextField(primary_key=True, serialize=False, verbose_name="e-mail")),
                ("full_name", models.TextField()),
                ("company_name", models.TextField()),
                ("customer_tier", models.TextField()),
                ("partition", models.TextField()),
            ],
            options={
                "db_table": "directory_customer_profile_view",
                "ordering": ["partition", "email"],
                "managed": False,
            },
        ),
        migrations.RunSQL(PARTITION_VIEW, "DROP VIEW directory_partition_view"),
        migrations.RunSQL(PROFILE_VIEW, "DROP VIEW directory_customer_profile_view"),
    ]
