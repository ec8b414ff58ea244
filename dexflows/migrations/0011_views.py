"""The read-only views once more."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0010_store_writes")]

    operations = []
