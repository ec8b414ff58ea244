"""Messages that wait in the Channels of a run."""

from django.db import models


class QueuedMessage(models.Model):
    """A message that no Step has taken. `instance` is '' for a Channel; `seq` is the order within the run."""

    pk = models.CompositePrimaryKey("run_id", "name", "instance", "seq")
    run_id = models.UUIDField()
    name = models.CharField(max_length=255)
    instance = models.TextField()
    seq = models.BigIntegerField()
    value = models.JSONField()
    published_at = models.DateTimeField()

    class Meta:
        db_table = "dexflows_channel_message"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.name}" + (f"/{self.instance}" if self.instance else "") + f"/{self.seq}"
