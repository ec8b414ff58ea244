"""What Attribute Stores need besides the outbox."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dexflows", "0009_secrets")]

    operations = []
