"""Runs: the list, and the page that tells everything about one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import ExpressionWrapper, F, IntegerField, QuerySet, TextField, UUIDField
from django.db.models.fields import DateTimeField
from django.db.models.functions import Collate
from django.http import HttpRequest, HttpResponse

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import ReadOnlyAdmin
from dexflows.admin.rendering import json_field, link, run_address, text_column, time_column
from dexflows.admin.run_page import run_page
from dexflows.models import Run
from dexflows.registry import registry
from dexflows.selectors import parent_of
from dexflows.states import RunStatus

FLOW_KEY = Collate("flow_id", "C")
LATEST = ExpressionWrapper(F("run_number") * -1, output_field=IntegerField())
NEWEST_FIRST = Keyset(columns={"started_at": DateTimeField(), "run_id": UUIDField()})
BY_FLOW_ID = Keyset(columns={"flow_key": TextField(), "latest": IntegerField()}, descending=False)
"""Flow IDs in the order of their bytes, the latest run of each first: what the index of the prefix search holds."""


class StatusFilter(admin.SimpleListFilter):
    """One status of the known ones; no query asks which occur."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(status.value, status.value) for status in RunStatus]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class FlowTypeFilter(admin.SimpleListFilter):
    """One of the Flow types that this process knows, or the one in the address."""

    title = "Flow type"
    parameter_name = "flow_type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        known = {definition.flow_type for definition in registry.definitions()}
        if chosen := request.GET.get(self.parameter_name):
            known.add(chosen)
        return [(flow_type, flow_type) for flow_type in sorted(known)]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(flow_type=self.value()) if self.value() else queryset


@admin.display(description="Parent")
def _parent(run: Run) -> str:
    parent = parent_of(run)
    return link(run_address(parent.run_id), parent.flow_id) if parent else "-"


@admin.display(description="Retried by")
def _retried_by(run: Run) -> str:
    return link(run_address(run.retried_by), run.retried_by) if run.retried_by else "-"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """All runs, newest first."""

    keyset = NEWEST_FIRST
    json_fields = ("input", "config", "timeout", "retry")
    list_display = (
        "flow_id",
        "flow_type",
        "status",
        time_column("started_at", "Started"),
        time_column("closed_at", "Closed"),
        "run_number",
        "run_id",
    )
    lookups = ("status", "flow_type")
    list_filter = (StatusFilter, FlowTypeFilter)
    search_fields = ("flow_id",)
    search_help_text = "A Flow ID, the beginning of one, or a run ID."
    change_form_template = "admin/dexflows/run/change_form.html"
    shown = (
        text_column("flow_id", "Flow ID"),
        text_column("run_id", "Run ID"),
        "run_number",
        "flow_type",
        "status",
        time_column("started_at", "Started"),
        time_column("closed_at", "Closed"),
        "error_type",
        "error_message",
        "queue",
        text_column("request_id", "Request ID"),
        time_column("deadline", "Timeout"),
        _parent,
        _retried_by,
        json_field("input", "Input"),
        json_field("config", "Configuration"),
    )

    def keyset_of(self, search_term: str) -> Keyset:
        term = search_term.strip()
        return BY_FLOW_ID if term and _run_id(term) is None else NEWEST_FIRST

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if run_id := _run_id(term):
            return queryset.filter(run_id=run_id), False
        return queryset.annotate(flow_key=FLOW_KEY, latest=LATEST).filter(flow_key__startswith=term), False

    def find(self, rows: QuerySet[Any], object_id: str) -> QuerySet[Any]:
        run_id = _run_id(object_id)
        return rows.filter(run_id=run_id) if run_id else rows.none()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        run = kwargs.get("obj")
        if run is not None:
            context |= run_page(run, allowed=lambda model: request.user.has_perm(f"dexflows.view_{model}"))
        return super().render_change_form(request, context, *args, **kwargs)


def _run_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
