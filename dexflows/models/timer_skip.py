"""Timers that are to be skipped and whose Step does not wait yet."""

from django.db import models


class TimerSkip(models.Model):
    """A skip that came before its wait. `timer` is the condition's index, or `id:` and its condition_id."""

    pk = models.CompositePrimaryKey("run_id", "step_type", "number", "timer")
    run_id = models.UUIDField()
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    timer = models.CharField(max_length=300)

    class Meta:
        db_table = "dexflows_timer_skip"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step_type}-{self.number}/{self.timer}"
