"""One execution of a Flow ID."""

from django.db import models
from django.db.models import F, Q

from dexflows.states import RunStatus


class Run(models.Model):
    """A run. `run_number` counts the runs of one Flow ID from 1; the latest run is the highest.

    Callers' Flow IDs have up to 255 characters, those of SubFlows more. `deadline` is when the run's timeout comes,
    and `timeout` what happens then. `retry` holds the Flow's retry policy and what the run was started from; a failed
    run that is retried names the next one in `retried_by`. `closing` is how a run will close that has ended by itself
    and waits for its writes to Attribute Stores. A closed run may be removed from `expires_at` on.
    """

    run_id = models.UUIDField(primary_key=True)
    flow_id = models.CharField(max_length=1024)
    run_number = models.IntegerField()
    flow_type = models.CharField(max_length=255)
    status = models.CharField(max_length=16, choices=[(s.value, s.value) for s in RunStatus])
    queue = models.CharField(max_length=255)
    request_id = models.CharField(max_length=255, null=True)
    input = models.JSONField(null=True)
    config = models.JSONField(null=True)
    started_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    error_type = models.TextField(null=True)
    error_message = models.TextField(null=True)
    deadline = models.DateTimeField(null=True)
    timeout = models.JSONField(null=True)
    retry = models.JSONField(null=True)
    retried_by = models.UUIDField(null=True)
    parent_run_id = models.UUIDField(null=True)
    closing = models.JSONField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dexflows_run"
        constraints = [
            models.UniqueConstraint(fields=["flow_id", "run_number"], name="dexflows_run_number"),
            models.UniqueConstraint(
                fields=["flow_id"], condition=Q(status=RunStatus.RUNNING), name="dexflows_run_one_running"
            ),
            models.CheckConstraint(
                name="dexflows_run_status",
                condition=Q(status=RunStatus.RUNNING, closed_at__isnull=True)
                | Q(status__in=[s.value for s in RunStatus if s.is_closed], closed_at__isnull=False),
            ),
            models.CheckConstraint(
                name="dexflows_run_closing", condition=Q(status=RunStatus.RUNNING) | Q(closing__isnull=True)
            ),
        ]
        indexes = [
            models.Index(fields=["-started_at", "-run_id"], name="dexflows_run_newest"),
            models.Index(
                F("deadline"),
                name="dexflows_run_deadline",
                condition=Q(status=RunStatus.RUNNING, deadline__isnull=False),
            ),
            models.Index(F("expires_at"), name="dexflows_run_expires_at", condition=Q(expires_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.flow_id} ({self.run_id})"
