"""The committed values of Attributes and AttributeMaps."""

from django.db import models


class AttributeValue(models.Model):
    """One value. `instance` is `''` for a singleton, `entry` is `''` for a value that is stored whole."""

    pk = models.CompositePrimaryKey("run_id", "name", "instance", "entry")
    run_id = models.UUIDField()
    name = models.CharField(max_length=255)
    instance = models.TextField(default="")
    entry = models.TextField(default="")
    value = models.JSONField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "dexflows_attribute"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.name}" + (f"/{self.instance}" if self.instance else "")
