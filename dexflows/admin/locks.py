"""Who holds a lock and who waits for one, the longest first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BigIntegerField, DateTimeField, F, QuerySet, TextField, UUIDField
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import OfRunAdmin
from dexflows.admin.rendering import NOW, age, link, run_column, step_address, time_column
from dexflows.models import LockHolder, LockWaiter


@admin.display(description="Step")
def _step(row: Any) -> str:
    return link(step_address(row.run_id, row.step_execution_id), row.step_execution_id)


@admin.display(description="For")
def _age(row: Any) -> str:
    return age(row.age)


@admin.display(description="Locks")
def _locks(row: Any) -> str:
    return ", ".join(row.exclusive)


@admin.register(LockHolder)
class LockHolderAdmin(OfRunAdmin):
    """There are never more rows than running Steps have locks, so their order needs no index."""

    keyset = Keyset(
        columns={"acquired_at": DateTimeField(), "run_id": UUIDField(), "key": TextField()}, descending=False
    )
    list_display = ("key", run_column, "flow_type", _step, _age, time_column("acquired_at", "Since"))
    shown = ("key", run_column, "run_id", "flow_type", _step, _age, time_column("acquired_at", "Since"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(age=NOW - F("acquired_at"))
        return rows


@admin.register(LockWaiter)
class LockWaiterAdmin(OfRunAdmin):
    """Within a run, and so for each lock, the order of this list is the order in which they are served."""

    keyset = Keyset(columns={"waiting_since": DateTimeField(), "ticket": BigIntegerField()}, descending=False)
    list_display = (_locks, run_column, "flow_type", _step, _age, time_column("waiting_since", "Since"), "ticket")
    shown = (_locks, run_column, "run_id", "flow_type", _step, _age, time_column("waiting_since", "Since"), "ticket")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(age=NOW - F("waiting_since"))
        return rows
