"""The history of a run."""

from django.db import models


class Event(models.Model):
    """Something that happened to a run or to one of its Steps. Never holds a secret or a handler's input."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.CharField(max_length=255)
    step = models.CharField(max_length=300, null=True)
    data = models.JSONField(null=True)

    class Meta:
        db_table = "dexflows_event"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.kind}"
