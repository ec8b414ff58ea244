"""The directory in the admin: everything can be looked at, nothing can be changed.

Lists never open every bucket: partitions are counted page by page, profiles are read bucket by bucket from where the
last page ended, and a search by e-mail goes to the one bucket that can hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Page, Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from directory.conf import partition_count
from directory.models import CustomerProfile, DirectorySchema, Partition
from directory.partitioning import EmailPartition, InvalidEmailAddressError, email_partition

AFTER_VAR: Final = "after"

# These take a type parameter in Django's stubs only.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator


class _OrderedChangeList(ChangeList):
    """A list in its model's order whatever its address asks for: any other order would open every bucket."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return list(self.lookup_opts.ordering or ["pk"])


class _ReadOnlyAdmin(_ModelAdmin):
    actions = None
    sortable_by = ()
    show_full_result_count = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _OrderedChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Any other filter in an address would open every bucket.
        return lookup == "partition"

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # PostgreSQL refuses the character even in a comparison.
        return None if "\x00" in object_id else super().get_object(request, object_id, from_field)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(DirectorySchema)
class DirectorySchemaAdmin(_ReadOnlyAdmin):
    """The recorded partition count and algorithm."""

    list_display = ("partition_count", "algorithm", "recorded_at")


class PartitionPaginator(_Paginator):
    """Picks a page's names first: skipping rows of the view itself would count the profiles of each skipped one."""

    def page(self, number: Any) -> Page[Any]:
        page = super().page(number)
        rows = cast("QuerySet[Partition]", page.object_list)
        names = list(rows.values_list("pk", flat=True))
        page.object_list = cast("QuerySet[Partition]", self.object_list).filter(pk__in=names)
        return page


@admin.register(Partition)
class PartitionAdmin(_ReadOnlyAdmin):
    """The used partitions with the number of profiles in each."""

    list_display = ("instance", "profiles", "updated_at", "browse")
    list_per_page = 50
    list_max_show_all = 0
    paginator = PartitionPaginator
    search_fields = ("instance",)
    search_help_text = "A partition, or an e-mail address: finds the partition that holds it."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        names = {search_term.strip()}
        if place := _place_of(search_term):
            names.add(place.instance)
        return queryset.filter(instance__in=names), False

    @admin.display(description="Profiles")
    def browse(self, partition: Partition) -> str:
        """The link to the partition's profiles."""
        address = reverse("admin:directory_customerprofile_changelist", current_app=self.admin_site.name)
        return format_html('<a href="{}?{}">browse</a>', address, urlencode({"partition": partition.instance}))


class ProfileChangeList(_OrderedChangeList):
    """A list without page numbers: a page begins after the last profile of the one before, wherever that was."""

    next_page_query: str | None = None

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        lookups: dict[str, Any] = super().get_filters_params(params)
        lookups.pop(AFTER_VAR, None)
        return lookups

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        queryset = super().get_queryset(request, exclude_parameters)
        if any("\x00" in value for value in request.GET.values()):
            return queryset.none()
        partition, _, email = request.GET.get(AFTER_VAR, "").partition("/")
        if not partition:
            return queryset
        later = Q(partition__gt=partition) | Q(partition=partition, email__gt=email)
        return queryset.filter(later, partition__gte=partition)

    def get_results(self, request: HttpRequest) -> None:
        found = list(self.queryset[: self.list_per_page + 1])
        page = found[: self.list_per_page]
        if len(found) > len(page):
            after = f"{page[-1].partition}/{page[-1].email}"
            self.next_page_query = self.get_query_string({AFTER_VAR: after})
        self.result_list = page
        self.result_count = len(page)
        self.full_result_count = None
        self.show_admin_actions = False
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(page, self.list_per_page)

    @property
    def first_page_query(self) -> str | None:
        """The query string of the list's beginning, unless this is it."""
        return self.get_query_string(remove=[AFTER_VAR]) if AFTER_VAR in self.params else None

    @property
    def chosen_partition(self) -> str | None:
        """The partition that the list is narrowed to."""
        value = self.params.get("partition")
        return str(value) if value else None


@admin.register(CustomerProfile)
class CustomerProfileAdmin(_ReadOnlyAdmin):
    """The saved profiles, in the order of partition and address."""

    list_display = ("email", "full_name", "company_name", "customer_tier", "partition")
    list_per_page = 100
    search_fields = ("email",)
    search_help_text = "A whole e-mail address; case and outer whitespace do not matter."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ProfileChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (_of_address(queryset, search_term) if search_term else queryset), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return None if "\x00" in object_id else _of_address(self.get_queryset(request), object_id).first()


def _of_address(profiles: QuerySet[Any], address: str) -> QuerySet[Any]:
    place = _place_of(address)
    if place is None:
        return profiles.none()
    return profiles.filter(partition=place.instance, email=place.canonical_email)


def _place_of(address: str) -> EmailPartition | None:
    try:
        return email_partition(address, partition_count())
    except InvalidEmailAddressError:
        return None
