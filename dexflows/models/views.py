"""Engine rows to look at: unmanaged models over the read-only SQL views `dexflows_v1_*`.

The tables have primary keys of several columns, which Django's admin cannot address; here each row has a text `id`
beside them. The `id` is computed, so look a row up with `at`, which reads the table's primary key.
"""

from __future__ import annotations

import json
from typing import Any, Self, TypeVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models

from dexflows.attribute import physical_name
from dexflows.states import StepState

_Record = TypeVar("_Record", bound="Record")


class RecordQuerySet(models.QuerySet[_Record]):
    """Rows that are addressed by `run_id:rest`."""

    def at(self, record_id: str) -> Self:
        """The row of this ID; no row when it is not an ID."""
        run_id, _, rest = record_id.partition(":")
        try:
            return self.filter(run_id=UUID(run_id), **self.model.parse_rest(rest))
        except (ValueError, RecursionError):
            return self.none()


class Record(models.Model):
    """What the views have in common: the text `id`."""

    id = models.TextField(primary_key=True)

    class Meta:
        abstract = True

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The columns of the primary key behind the part of an ID after `run_id:`. Raises ValueError."""
        raise NotImplementedError


class StepRecord(Record):
    """A Step execution, `run_id:StepType-number`."""

    run_id = models.UUIDField("run ID")
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    flow_id = models.CharField("Flow ID", max_length=1024)
    flow_type = models.CharField("Flow type", max_length=255)
    queue = models.CharField(max_length=255)
    method = models.CharField(max_length=8)
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in StepState])
    attempt = models.IntegerField()
    worker = models.TextField(null=True)
    lease_until = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    parked_reason = models.TextField(null=True)
    from_step = models.CharField(max_length=300, null=True)
    input = models.JSONField(null=True)
    options = models.JSONField(null=True)
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

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_step"
        verbose_name = "Step execution"

    def __str__(self) -> str:
        return f"{self.step_type}-{self.number}"

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind `StepType-number`. Raises ValueError."""
        return _step_key(rest)


class AttributeRecord(Record):
    """A committed value, `run_id:["name","instance","entry"]`."""

    run_id = models.UUIDField("run ID")
    name = models.CharField(max_length=255)
    instance = models.TextField()
    entry = models.TextField()
    flow_id = models.CharField("Flow ID", max_length=1024)
    flow_type = models.CharField("Flow type", max_length=255)
    value = models.JSONField()
    updated_at = models.DateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_attribute"
        verbose_name = "Attribute"

    def __str__(self) -> str:
        return physical_name(self.name, self.instance) + (f" [{self.entry}]" if self.entry else "")

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind the JSON list. Raises ValueError."""
        parts = json.loads(rest)
        if not (isinstance(parts, list) and len(parts) == 3 and all(isinstance(part, str) for part in parts)):
            raise ValueError("not a list of three texts")
        if "\x00" in "".join(parts):
            raise ValueError("no name holds a NUL")
        return dict(zip(("name", "instance", "entry"), parts, strict=True))


class MessageRecord(Record):
    """A message that waits in a Channel, `run_id:["name","instance",seq]`."""

    run_id = models.UUIDField("run ID")
    name = models.CharField("Channel", max_length=255)
    instance = models.TextField()
    seq = models.BigIntegerField("message ID")
    flow_id = models.CharField("Flow ID", max_length=1024)
    flow_type = models.CharField("Flow type", max_length=255)
    value = models.JSONField()
    published_at = models.DateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_message"
        verbose_name = "message"

    def __str__(self) -> str:
        return f"{physical_name(self.name, self.instance)} {self.seq}"

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind the JSON list. Raises ValueError."""
        name, instance, seq = json.loads(rest)
        if not (isinstance(name, str) and isinstance(instance, str) and type(seq) is int and abs(seq) < 2**63):
            raise ValueError("not a name, an instance and a number")
        if "\x00" in name + instance:
            raise ValueError("no name holds a NUL")
        return {"name": name, "instance": instance, "seq": seq}


class EventRecord(Record):
    """An entry of a run's history, `run_id:seq`."""

    run_id = models.UUIDField("run ID")
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.CharField(max_length=255)
    step = models.CharField(max_length=300, null=True)
    data = models.JSONField(null=True)

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_event"
        verbose_name = "event"

    def __str__(self) -> str:
        return f"{self.kind} {self.step}" if self.step else self.kind

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind the sequence number. Raises ValueError."""
        return {"seq": int(rest)}


class LockHolder(Record):
    """A lock and the Step that holds it, `run_id:key`."""

    run_id = models.UUIDField("run ID")
    key = models.TextField("lock")
    map_key = models.TextField(null=True)
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    flow_id = models.CharField("Flow ID", max_length=1024)
    flow_type = models.CharField("Flow type", max_length=255)
    acquired_at = models.DateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_lock_holder"
        verbose_name = "lock holder"

    def __str__(self) -> str:
        return f"{self.key} held by {self.step_execution_id}"

    @property
    def step_execution_id(self) -> str:
        """The holder within its run."""
        return f"{self.step_type}-{self.number}"

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind the lock's physical name. Raises ValueError."""
        if "\x00" in rest:
            raise ValueError("no lock has a NUL in its name")
        return {"key": rest}


class LockWaiter(Record):
    """A Step that waits for locks, `run_id:StepType-number`; `ticket` orders the queue."""

    run_id = models.UUIDField("run ID")
    step_type = models.CharField(max_length=255)
    number = models.IntegerField()
    exclusive: ArrayField[list[str], list[str]] = ArrayField(models.TextField(), verbose_name="locks")
    shared: ArrayField[list[str], list[str]] = ArrayField(models.TextField())
    ticket = models.BigIntegerField()
    flow_id = models.CharField("Flow ID", max_length=1024)
    flow_type = models.CharField("Flow type", max_length=255)
    waiting_since = models.DateTimeField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "dexflows_v1_lock_waiter"
        verbose_name = "lock waiter"

    def __str__(self) -> str:
        return f"{self.step_execution_id} waits for {', '.join(self.exclusive)}"

    @property
    def step_execution_id(self) -> str:
        """The waiter within its run."""
        return f"{self.step_type}-{self.number}"

    @staticmethod
    def parse_rest(rest: str) -> dict[str, Any]:
        """The primary key behind `StepType-number`. Raises ValueError."""
        return _step_key(rest)


def _step_key(step_execution_id: str) -> dict[str, Any]:
    step_type, _, number = step_execution_id.rpartition("-")
    if "\x00" in step_type:
        raise ValueError("no Step type holds a NUL")
    return {"step_type": step_type, "number": int(number)}
