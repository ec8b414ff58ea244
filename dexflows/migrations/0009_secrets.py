"""Hard-delete Attributes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0008_search_entries")]

    operations = []
