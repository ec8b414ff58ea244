"""The addresses of the engine's pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import reverse

from dexflows.models import AttributeRecord, EventRecord, LockHolder, LockWaiter, MessageRecord, Run, StepRecord

MODELS: tuple[type[Model], ...] = (
    Run,
    StepRecord,
    AttributeRecord,
    EventRecord,
    LockHolder,
    LockWaiter,
    MessageRecord,
)


def list_of(model: type[Model], **parameters: Any) -> str:
    """The address of a list."""
    address = reverse(f"admin:dexflows_{model._meta.model_name}_changelist")
    return f"{address}?{urlencode(parameters)}" if parameters else address


def page_of(row: Model, view: str = "change") -> str:
    """The address of a row's page."""
    return reverse(f"admin:dexflows_{row._meta.model_name}_{view}", args=[quote(str(row.pk))])


def first_of(model: type[Model]) -> Any:
    """Some row."""
    row = model._default_manager.order_by("run_id").first()
    assert row is not None
    return row
