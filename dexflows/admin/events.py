"""The history of all runs, that of the newest runs first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BigIntegerField, QuerySet, UUIDField
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import OfRunAdmin
from dexflows.admin.rendering import json_field, json_preview, link, preview_column, run_address, time_column
from dexflows.models import EventRecord


@admin.display(description="Run")
def _run(event: Any) -> str:
    return link(run_address(event.run_id), event.run_id)


@admin.register(EventRecord)
class EventRecordAdmin(OfRunAdmin):
    """Events are read run by run, each run's newest first."""

    keyset = Keyset(columns={"run_id": UUIDField(), "seq": BigIntegerField()})
    json_fields = ("data",)
    list_display = ("__str__", _run, time_column("at", "At"), preview_column("data", "Details"))
    shown = ("kind", "step", time_column("at", "At"), _run, "seq", json_field("data", "Details"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(**json_preview("data"))
        return rows
