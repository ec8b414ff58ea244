"""How values, moments and references look. Every text is escaped; nothing of a payload is ever evaluated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Case, DateTimeField, F, Func, IntegerField, TextField, When
from django.db.models.functions import Cast, Left
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from dexflows.models.raw_json import raw_json

SHOWN_CHARACTERS: Final = 20_000
PREVIEW_CHARACTERS: Final = 120
PREVIEWED_BYTES: Final = 8192

NOW = Func(function="dexflows_now", output_field=DateTimeField())
"""The database's time, so that an age is right on a machine whose clock is wrong."""


def json_text(field: str) -> dict[str, Any]:
    """Annotations `FIELD_text`, the beginning of the formatted JSON, and `FIELD_bytes`, its size."""
    # PostgreSQL formats it: numbers stay exact, and a large value never comes here whole.
    pretty = Func(F(field), function="jsonb_pretty", output_field=TextField())
    size = Func(raw_json(field), function="octet_length", output_field=IntegerField())
    return {f"{field}_text": Left(pretty, SHOWN_CHARACTERS), f"{field}_bytes": size}


def json_preview(field: str) -> dict[str, Any]:
    """Annotations `FIELD_preview`, None for a large value, which is not unpacked, and `FIELD_stored`, its size."""
    stored = Func(F(field), function="pg_column_size", output_field=IntegerField())
    shown = When(
        **{f"{field}_stored__lte": PREVIEWED_BYTES}, then=Left(Cast(F(field), TextField()), PREVIEW_CHARACTERS)
    )
    return {f"{field}_stored": stored, f"{field}_preview": Case(shown)}


def value_block(text: str | None, size: int | None) -> str:
    """Formatted JSON, or what is shown of it."""
    if text is None:
        return "-"
    if len(text) < SHOWN_CHARACTERS:
        return format_html('<pre class="dexflows-value">{}</pre>', text)
    note = f"The first {SHOWN_CHARACTERS} characters of a value of {filesizeformat(size or 0)}."
    return format_html('<pre class="dexflows-value">{}</pre><p class="help">{}</p>', text, note)


def value_preview(text: str | None, stored: int | None) -> str:
    """The beginning of a value in one line."""
    if stored is None:
        return "-"
    if text is None:
        return f"{filesizeformat(stored)} stored"
    return format_html("<code>{}{}</code>", text, "…" if len(text) == PREVIEW_CHARACTERS else "")


def moment(value: datetime | None) -> str:
    """A time to the millisecond, in the project's time zone."""
    if value is None:
        return "-"
    local = timezone.localtime(value)
    shown = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {local:%Z}"
    return format_html('<time class="nowrap" datetime="{}">{}</time>', local.isoformat(), shown)


def state_mark(state: str) -> str:
    """The state of a Step, in its colour."""
    return format_html('<span class="dexflows-state dexflows-state-{}">{}</span>', state.lower(), state)


def age(value: timedelta | None) -> str:
    """How long ago, in the two largest units."""
    if value is None:
        return "-"
    seconds = max(0, int(value.total_seconds()))
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, seconds = divmod(seconds, length)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2]) or "0 s"


def run_address(run_id: Any) -> str:
    """The page of a run."""
    return reverse("admin:dexflows_run_change", args=[quote(str(run_id))])


def step_address(run_id: Any, step_execution_id: str) -> str:
    """The page of a Step execution."""
    return reverse("admin:dexflows_steprecord_change", args=[quote(f"{run_id}:{step_execution_id}")])


def list_address(model: str, run_id: Any) -> str:
    """A list, narrowed to a run."""
    return reverse(f"admin:dexflows_{model}_changelist") + "?" + urlencode({"run_id": str(run_id)})


def link(address: str, text: Any) -> str:
    """A link."""
    return format_html('<a href="{}">{}</a>', address, text)


def text_column(name: str, label: str) -> Callable[[Any], str]:
    """A field under a label of its own."""
    return _column(name, label, lambda row: str(getattr(row, name) or "-"))


def time_column(name: str, label: str) -> Callable[[Any], str]:
    """A column or field that shows a time."""
    return _column(name, label, lambda row: moment(getattr(row, name)))


def json_field(name: str, label: str) -> Callable[[Any], str]:
    """A field that shows what `json_text` read."""
    return _column(name, label, lambda row: value_block(getattr(row, f"{name}_text"), getattr(row, f"{name}_bytes")))


def preview_column(name: str, label: str) -> Callable[[Any], str]:
    """A column that shows what `json_preview` read."""
    return _column(
        name, label, lambda row: value_preview(getattr(row, f"{name}_preview"), getattr(row, f"{name}_stored"))
    )


def _column(name: str, label: str, show: Callable[[Any], str]) -> Callable[[Any], str]:
    show.__name__ = name
    return admin.display(description=label)(show)


@admin.display(description="Flow")
def run_column(row: Any) -> str:
    """The link from a row to its run."""
    return link(run_address(row.run_id), row.flow_id)
