"""What all pages share: view permission only, one row by its key, lists along a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from dexflows.admin.keyset import Keyset, KeysetChangeList
from dexflows.admin.rendering import json_text
from dexflows.conf import conf
from dexflows.models import Run

# It takes a type parameter in Django's stubs only.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

LATEST_RUNS = 100
"""How many runs of one Flow ID a search looks into."""


class ReadOnlyAdmin(_ModelAdmin):
    """Nothing can be added, changed or deleted, whatever a user's rights say."""

    keyset: ClassVar[Keyset]
    json_fields: ClassVar[Sequence[str]] = ()
    shown: ClassVar[Sequence[str | Callable[[Any], str]]]
    """The fields of a row's page; the JSON ones as `json_field`."""
    lookups: ClassVar[Sequence[str]] = ()
    """The filters that an address may carry; one on any other column would scan the table."""
    actions = None
    list_per_page = 100
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    change_list_template = "admin/dexflows/keyset_change_list.html"

    class Media:
        css: ClassVar = {"all": ["dexflows/admin.css"]}

    def keyset_of(self, search_term: str) -> Keyset:
        """The order of the list for this search."""
        return self.keyset

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(conf().database).defer(*self.json_fields)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        texts: dict[str, Any] = {}
        for field in self.json_fields:
            texts |= json_text(field)
        found = self.find(self.get_queryset(request), object_id).annotate(**texts)
        return next(iter(found), None)

    def find(self, rows: QuerySet[Any], object_id: str) -> QuerySet[Any]:
        """The row with this ID, through an index."""
        found: QuerySet[Any] = rows.at(object_id)  # type: ignore[attr-defined]
        return found

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.shown

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in self.lookups

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class OfRunAdmin(ReadOnlyAdmin):
    """Rows of runs: the list can be narrowed to a run, and the search box takes a run ID or a Flow ID."""

    lookups: ClassVar[Sequence[str]] = ("run_id",)
    search_fields = ("run_id",)
    search_help_text = "A run ID or a Flow ID."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(run_id__in=_runs_of(term)) if term else queryset), False


def _runs_of(term: str) -> list[UUID]:
    try:
        return [UUID(term)]
    except ValueError:
        runs = Run.objects.using(conf().database).filter(flow_id=term).order_by("-run_number")
        return list(runs.values_list("run_id", flat=True)[:LATEST_RUNS])
