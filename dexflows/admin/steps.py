"""Step executions of all runs, those of the newest runs first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import CharField, IntegerField, QuerySet, UUIDField
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset
from dexflows.admin.read_only import OfRunAdmin
from dexflows.admin.rendering import json_field, run_column, time_column
from dexflows.models import StepRecord
from dexflows.states import StepState

OPEN = "open"


class StateFilter(admin.SimpleListFilter):
    """One state, or all open ones. An open state says so in SQL, which leads to the index of the open Steps."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(OPEN, "All open"), *((state.value, state.value) for state in StepState)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if not chosen:
            return queryset
        if chosen == OPEN:
            return queryset.filter(closed_at__isnull=True)
        if chosen not in list(StepState):
            return queryset.none()
        return queryset.filter(state=chosen, closed_at__isnull=StepState(chosen).is_open)


@admin.register(StepRecord)
class StepRecordAdmin(OfRunAdmin):
    """The run ID begins with the time, so its order is that of the runs' starts."""

    keyset = Keyset(columns={"run_id": UUIDField(), "step_type": CharField(), "number": IntegerField()})
    json_fields = ("input", "options", "locals", "failure", "output")
    list_display = (
        "__str__",
        run_column,
        "flow_type",
        "state",
        "method",
        "attempt",
        "queue",
        time_column("created_at", "Created"),
        time_column("started_at", "Last attempt"),
        time_column("closed_at", "Closed"),
    )
    lookups = ("run_id", "state")
    list_filter = (StateFilter,)
    shown = (
        "__str__",
        run_column,
        "run_id",
        "flow_type",
        "state",
        "parked_reason",
        "method",
        "attempt",
        "worker",
        "queue",
        "from_step",
        time_column("created_at", "Created"),
        time_column("first_attempt_at", "First attempt"),
        time_column("started_at", "Last attempt"),
        time_column("lease_until", "Lease until"),
        time_column("due_at", "Looked at again"),
        time_column("closed_at", "Closed"),
        json_field("failure", "Last failure"),
        json_field("input", "Input"),
        json_field("output", "Output"),
        json_field("locals", "Locals"),
        json_field("options", "Options"),
    )
