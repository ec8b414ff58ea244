"""Steps that wait for locks, in the order they began to wait."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class LockWait(models.Model):
    """A waiting Step. `exclusive` are the keys it wants, `shared` the whole-map keys that those instances touch."""

    pk = models.CompositePrimaryKey("run_id", "step_type", "number")
    run_id = models.UUIDField()
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    exclusive = ArrayField(models.TextField())
    shared = ArrayField(models.TextField())
    ticket = models.BigIntegerField()
    waiting_since = models.DateTimeField()

    class Meta:
        db_table = "dexflows_lock_wait"
        constraints = [models.UniqueConstraint(fields=["run_id", "ticket"], name="dexflows_lock_wait_ticket")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step_type}-{self.number}"
