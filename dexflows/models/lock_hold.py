"""Locks that running Steps hold. RPCs leave no rows: their locks end with their transaction."""

from django.db import models


class LockHold(models.Model):
    """A held lock. `key` is the physical name; `map_key` is `name/*` when `key` is one instance of that map."""

    pk = models.CompositePrimaryKey("run_id", "key")
    run_id = models.UUIDField()
    key = models.TextField()
    map_key = models.TextField(null=True)
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    token = models.UUIDField()
    acquired_at = models.DateTimeField()

    class Meta:
        db_table = "dexflows_lock_hold"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.key}"
