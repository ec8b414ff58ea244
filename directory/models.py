"""The directory as Django models: the recorded schema, and read-only views of the partitions and profiles.

``Partition`` and ``CustomerProfile`` read SQL views over the latest run's Attributes. A query that names a partition
reads one bucket, and one ordered by partition with a limit reads only the buckets it needs.
"""

from __future__ import annotations

from typing import ClassVar, Final

from django.db import models


class DirectorySchema(models.Model):
    """How the stored profiles are spread: one row, written when the directory is first started."""

    ONLY: Final = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY, editable=False)
    partition_count = models.PositiveIntegerField()
    algorithm = models.CharField(max_length=100)
    recorded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(id=1), name="directory_schema_is_one_row")]

    def __str__(self) -> str:
        return f"{self.partition_count} partitions by {self.algorithm}"


class Partition(models.Model):
    """One used partition. ``profiles`` is counted from the bucket when the row is read."""

    instance = models.TextField(primary_key=True)
    profiles = models.IntegerField()
    updated_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "directory_partition_view"
        ordering: ClassVar = ["instance"]

    def __str__(self) -> str:
        return self.instance


class CustomerProfile(models.Model):
    """One saved profile, under its canonical e-mail address."""

    email = models.TextField("e-mail", primary_key=True)
    full_name = models.TextField()
    company_name = models.TextField()
    customer_tier = models.TextField()
    partition = models.TextField()

    class Meta:
        managed = False
        db_table = "directory_customer_profile_view"
        ordering: ClassVar = ["partition", "email"]

    def __str__(self) -> str:
        return self.email
