"""Which runs a Step waits for, or has waited for."""

from django.db import models


class SubFlowLink(models.Model):
    """A condition of a Step of the run `run_id`, and the run that it waits for: the latest one, if that is retried."""

    pk = models.CompositePrimaryKey("run_id", "step_type", "number", "condition")
    run_id = models.UUIDField()
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    condition = models.IntegerField()
    child_run_id = models.UUIDField()

    class Meta:
        db_table = "dexflows_sub_flow"
        indexes = [models.Index(fields=["child_run_id"], name="dexflows_sub_flow_child")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step_type}-{self.number}/{self.condition}"
