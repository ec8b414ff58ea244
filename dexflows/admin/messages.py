"""Messages that wait in Channels, those of the newest runs first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BigIntegerField, CharField, QuerySet, TextField, UUIDField
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import OfRunAdmin
from dexflows.admin.rendering import json_field, json_preview, preview_column, run_column, time_column
from dexflows.models import MessageRecord


@admin.register(MessageRecord)
class MessageRecordAdmin(OfRunAdmin):
    """Messages leave this list when a Step takes them."""

    keyset = Keyset(
        columns={"run_id": UUIDField(), "name": CharField(), "instance": TextField(), "seq": BigIntegerField()}
    )
    json_fields = ("value",)
    list_display = (
        "__str__",
        run_column,
        preview_column("value", "Value"),
        time_column("published_at", "Published"),
    )
    shown = (
        "name",
        "instance",
        "seq",
        run_column,
        "run_id",
        "flow_type",
        time_column("published_at", "Published"),
        json_field("value", "Value"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(**json_preview("value"))
        return rows
