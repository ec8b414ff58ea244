from django.db import migrations, models

VIEW = """CREATE VIEW dexflows_v1_event AS
SELECT run_id || ':' || seq AS id, run_id, seq, at, kind, step, data
  FROM dexflows_event CROSS JOIN (SELECT) AS read_only"""
DROP = "DROP VIEW dexflows_v1_event"


class Migration(migrations.Migration):
    """A handler may name its events with as many characters as an Attribute; a view holds the column's type fast."""

    dependencies = [("dexflows", "0004_step_output_index")]

    operations = [
        migrations.RunSQL(DROP, VIEW),
        migrations.AlterField("event", "kind", models.CharField(max_length=255)),
        migrations.AlterField("eventrecord", "kind", models.CharField(max_length=255)),
        migrations.RunSQL(VIEW, DROP),
    ]
