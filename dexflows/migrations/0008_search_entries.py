"""The search index."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0007_closing_and_stores")]

    operations = []
