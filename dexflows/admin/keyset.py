"""Lists without counts and without page numbers: a page begins after the last row of the one before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Field, Model, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from django.http import HttpRequest

if TYPE_CHECKING:
    from dexflows.admin.read_only import ReadOnlyAdmin

AFTER_VAR: Final = "after"


@dataclass(frozen=True, kw_only=True)
class Keyset:
    """The columns that order a list and together name one row, all in one direction, so that an index serves them."""

    columns: Mapping[str, Field[Any, Any]]
    descending: bool = True

    def ordering(self) -> list[str]:
        """The ordering as Django takes it."""
        return [f"-{name}" if self.descending else name for name in self.columns]

    def cursor(self, row: Model) -> str:
        """The row's place as text."""
        values = (getattr(row, name) for name in self.columns)
        return json.dumps([v.isoformat() if hasattr(v, "isoformat") else str(v) for v in values], ensure_ascii=False)

    def after(self, rows: QuerySet[Any], cursor: str) -> QuerySet[Any]:
        """The rows that come after a place. Raises IncorrectLookupParameters when the text is no place."""
        try:
            given = json.loads(cursor)
            if not (isinstance(given, list) and all(isinstance(each, str) for each in given)):
                raise ValueError("a place is a list of texts")
            pairs = zip(self.columns.values(), given, strict=True)
            values = tuple(field.to_python(value) for field, value in pairs)
        except (ValueError, RecursionError, ValidationError) as fault:
            raise IncorrectLookupParameters from fault
        compare = TupleLessThan if self.descending else TupleGreaterThan
        return rows.filter(compare(Tuple(*self.columns), values))


class KeysetChangeList(ChangeList):
    """A change list that reads one row more than it shows, to know whether there is a next page."""

    model_admin: ReadOnlyAdmin
    next_page_query: str | None = None

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        lookups: dict[str, Any] = super().get_filters_params(params)
        lookups.pop(AFTER_VAR, None)
        return lookups

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        # Ordered in `get_queryset`: the search adds the columns that it is ordered by.
        return []

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        if any("\x00" in value for values in request.GET.lists() for value in (values[0], *values[1])):
            raise IncorrectLookupParameters
        rows = super().get_queryset(request, exclude_parameters).order_by(*self._keyset.ordering())
        cursor = self.params.get(AFTER_VAR)
        return rows if cursor is None else self._keyset.after(rows, cursor)

    def get_results(self, request: HttpRequest) -> None:
        found = list(self.queryset[: self.list_per_page + 1])
        page = found[: self.list_per_page]
        if len(found) > len(page):
            self.next_page_query = self.get_query_string({AFTER_VAR: self._keyset.cursor(page[-1])})
        self.result_list = page
        # Equal numbers keep the template from telling "100 results" of a list that was not counted.
        self.result_count = self.full_result_count = len(page)
        self.show_full_result_count = False
        self.show_admin_actions = self.can_show_all = self.multi_page = False
        self.paginator = Paginator(page, self.list_per_page)

    @property
    def first_page_query(self) -> str | None:
        """The query string of the list's beginning, unless this is it."""
        return self.get_query_string(remove=[AFTER_VAR]) if AFTER_VAR in self.params else None

    @property
    def chosen_run(self) -> str | None:
        """The run ID that the list is narrowed to."""
        value = self.params.get("run_id")
        return str(value) if value else None

    @property
    def _keyset(self) -> Keyset:
        return self.model_admin.keyset_of(self.query)
