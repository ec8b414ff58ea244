"""Committed Attribute values of all runs, those of the newest runs first."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from django.contrib import admin
from django.db.models import CharField, QuerySet, TextField, UUIDField
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import OfRunAdmin
from dexflows.admin.rendering import json_field, json_preview, preview_column, run_column, time_column
from dexflows.models import AttributeRecord


@admin.register(AttributeRecord)
class AttributeRecordAdmin(OfRunAdmin):
    """Within a run the search box takes an Attribute's name, or `name/instance`."""

    keyset = Keyset(columns={"run_id": UUIDField(), "name": CharField(), "instance": TextField(), "entry": TextField()})
    json_fields = ("value",)
    list_display = ("__str__", run_column, preview_column("value", "Value"), time_column("updated_at", "Updated"))
    search_help_text = "A run ID or a Flow ID; in the list of one run, an Attribute's name or name/instance."
    shown = (
        "name",
        "instance",
        "entry",
        run_column,
        "run_id",
        "flow_type",
        time_column("updated_at", "Updated"),
        json_field("value", "Value"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(**json_preview("value"))
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not (term and request.GET.get("run_id")):
            return super().get_search_results(request, queryset, search_term)
        name, slash, instance = term.partition("/")
        named = queryset.filter(name=name)
        return (named.filter(instance=unquote(instance)) if slash else named), False
