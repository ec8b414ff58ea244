"""What is still to be copied to Attribute Stores: the outbox."""

from django.db import models
from django.db.models import F, Q


class StoreWrite(models.Model):
    """A mark that says: the value of this Attribute is to be copied into this store. It holds no value.

    Whoever copies reads the value then, so marks of one Attribute are one row and the newest value wins; `seq` is new
    with every write, and a mark is removed only with the `seq` that was read. `closing` tells that the run waits for
    this mark to close. A mark that was given up has `dropped_at` and the `error`, and stays to be looked at.
    """

    pk = models.CompositePrimaryKey("run_id", "store", "name", "instance")
    run_id = models.UUIDField()
    store = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    instance = models.TextField(default="")
    flow_id = models.CharField(max_length=1024)
    seq = models.BigIntegerField()
    marked_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(default=0)
    first_failed_at = models.DateTimeField(null=True)
    error = models.TextField(null=True)
    dropped_at = models.DateTimeField(null=True)
    closing = models.BooleanField(default=False)

    class Meta:
        db_table = "dexflows_store_write"
        constraints = [
            models.CheckConstraint(
                name="dexflows_store_write_due",
                condition=Q(dropped_at__isnull=True, due_at__isnull=False)
                | Q(dropped_at__isnull=False, due_at__isnull=True),
            )
        ]
        indexes = [
            models.Index(
                F("store"), F("due_at"), name="dexflows_store_write_due_at", condition=Q(dropped_at__isnull=True)
            ),
            models.Index(F("flow_id"), F("store"), name="dexflows_store_write_flow"),
        ]

    def __str__(self) -> str:
        return f"{self.flow_id}/{self.name} to {self.store}"
