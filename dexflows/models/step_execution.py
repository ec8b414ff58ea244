"""One running of a Step type in a run."""

from django.db import models
from django.db.models import F, Q

from dexflows.states import StepMethod, StepState

DUE_STATES = (StepState.QUEUED, StepState.WAITING, StepState.BACKOFF, StepState.WAITING_FOR_LOCK)


class StepExecution(models.Model):
    """A Step execution: `step_type-number` within its run.

    `token` proves the right to settle the current attempt; a new one is made at each claim. `due_at` is when a
    sweep has to look at the row again: the end of a backoff, the next timer of a wait, or the time by which a doorbell
    should have been heard. `wait` is what the execution waits or waited for, `waited` what that came to, `recovery`
    the failure that it is to make good, `heartbeat` the last one's value. What each state says about its columns is
    in two CHECKs, `dexflows_step_state` (migration 0002) and `dexflows_step_waits` (0006).
    """

    pk = models.CompositePrimaryKey("run_id", "step_type", "number")
    run_id = models.UUIDField()
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    flow_type = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    method = models.CharField(max_length=8, choices=[(m.value, m.value) for m in StepMethod])
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in StepState])
    attempt = models.IntegerField(default=0)
    token = models.UUIDField(null=True)
    worker = models.TextField(null=True)
    lease_until = models.DateTimeField(null=True)
    method_deadline = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    rings = models.SmallIntegerField(default=0)
    parked_reason = models.TextField(null=True)
    from_step = models.CharField(max_length=300, null=True)
    input = models.JSONField(null=True)
    options = models.JSONField(null=True)
    plan = models.JSONField(null=True)
    locals = models.JSONField(null=True)
    wait = models.JSONField(null=True)
    waited = models.JSONField(null=True)
    recovery = models.JSONField(null=True)
    heartbeat = models.JSONField(null=True)
    failure = models.JSONField(null=True)
    output = models.JSONField(null=True)
    created_at = models.DateTimeField()
    first_attempt_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dexflows_step_execution"
        indexes = [
            models.Index(
                F("due_at"),
                name="dexflows_step_due_at",
                condition=Q(state__in=[s.value for s in DUE_STATES], due_at__isnull=False),
            ),
            models.Index(fields=["run_id"], name="dexflows_step_open", condition=Q(closed_at__isnull=True)),
            models.Index(
                fields=["flow_type", "step_type"],
                name="dexflows_step_parked",
                condition=Q(parked_reason__isnull=False),
            ),
            models.Index(fields=["run_id"], name="dexflows_step_output", condition=Q(output__isnull=False)),
            models.Index(F("lease_until"), name="dexflows_step_lease", condition=Q(state=StepState.RUNNING)),
        ]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step_execution_id}"

    @property
    def step_execution_id(self) -> str:
        return f"{self.step_type}-{self.number}"
