"""The sections of a run's page: each is bounded, and links to the full list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import quote
from django.db.models import F, QuerySet
from django.urls import reverse

from dexflows.admin.rendering import (
    NOW,
    age,
    json_preview,
    link,
    list_address,
    moment,
    run_address,
    state_mark,
    step_address,
    value_preview,
)
from dexflows.conf import conf
from dexflows.models import AttributeRecord, EventRecord, LockHolder, LockWaiter, MessageRecord, Run, StepRecord
from dexflows.selectors import children_of
from dexflows.why import why

SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of a run's page; `more` is the address of the full list, where there is one."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str
    more: str | None


def run_page(run: Run, *, allowed: Callable[[str], bool]) -> dict[str, Any]:
    """The template's context: why the run is not moving, and the sections that the user may see."""
    makers = {
        "steprecord": _steps,
        "attributerecord": _attributes,
        "messagerecord": _messages,
        "lockholder": _holders,
        "lockwaiter": _waiters,
        "eventrecord": _events,
    }
    reasons = why(run, limit=SHOWN) if allowed("steprecord") else None
    return {
        "reasons": None if reasons is None else [_reason_row(run, reason) for reason in reasons],
        "sections": [*_sub_flows(run), *(make(run) for model, make in makers.items() if allowed(model))],
    }


def _sub_flows(run: Run) -> list[Section]:
    """One section, and none for a run without SubFlows."""
    found = children_of(run, limit=SHOWN + 1)
    rows: list[tuple[Any, ...]] = [
        (
            link(step_address(run.run_id, each.step_execution_id), each.step_execution_id),
            each.condition,
            link(run_address(each.child.run_id), each.child.flow_id),
            each.child.flow_type,
            each.child.status,
            moment(each.child.started_at),
            moment(each.child.closed_at),
        )
        for each in found[:SHOWN]
    ]
    headings = ("Step", "Condition", "Flow", "Flow type", "Status", "Started", "Closed")
    note = f"{SHOWN} of more." if len(found) > SHOWN else ""
    return [Section(title="SubFlows", headings=headings, rows=rows, note=note, more=None)] if rows else []


def _reason_row(run: Run, reason: Any) -> dict[str, Any]:
    step = link(step_address(run.run_id, reason.step), reason.step) if reason.step else "The run"
    return {"step": step, "text": reason.text, "since": moment(reason.since), "until": moment(reason.until)}


def _rows(model: Any, run: Run) -> QuerySet[Any]:
    rows: QuerySet[Any] = model.objects.using(conf().database).filter(run_id=run.run_id)
    return rows


def _section(
    run: Run,
    model: Any,
    title: str,
    headings: tuple[str, ...],
    found: list[Any],
    show: Callable[[Any], tuple[Any, ...]],
) -> Section:
    complete = len(found) <= SHOWN
    return Section(
        title=title,
        headings=headings,
        rows=[show(row) for row in found[:SHOWN]],
        note="" if complete else f"{SHOWN} of more.",
        more=list_address(model._meta.model_name, run.run_id),
    )


def _page_of(row: Any) -> str:
    address = reverse(f"admin:dexflows_{row._meta.model_name}_change", args=[quote(row.pk)])
    return link(address, row)


def _steps(run: Run) -> Section:
    found = list(
        _rows(StepRecord, run)
        .defer("input", "options", "locals", "failure", "output", "flow_id")
        .order_by("-step_type", "-number")[: SHOWN + 1]
    )
    if len(found) <= SHOWN:
        found.sort(key=lambda step: (step.created_at, step.step_type, step.number), reverse=True)
    return _section(
        run,
        StepRecord,
        "Step executions",
        ("Step", "State", "Method", "Attempt", "Created", "Closed", "After"),
        found,
        lambda step: (
            _page_of(step),
            state_mark(step.state),
            step.method,
            step.attempt,
            moment(step.created_at),
            moment(step.closed_at),
            step.from_step or "-",
        ),
    )


def _attributes(run: Run) -> Section:
    found = _rows(AttributeRecord, run).annotate(**json_preview("value")).defer("value", "flow_id", "flow_type")
    return _section(
        run,
        AttributeRecord,
        "Attributes",
        ("Attribute", "Value", "Updated"),
        list(found.order_by("name", "instance", "entry")[: SHOWN + 1]),
        lambda row: (_page_of(row), value_preview(row.value_preview, row.value_stored), moment(row.updated_at)),
    )


def _messages(run: Run) -> Section:
    found = _rows(MessageRecord, run).annotate(**json_preview("value")).defer("value", "flow_id", "flow_type")
    return _section(
        run,
        MessageRecord,
        "Messages that wait in Channels, each Channel's oldest first",
        ("Channel and message ID", "Value", "Published"),
        list(found.order_by("name", "instance", "seq")[: SHOWN + 1]),
        lambda row: (_page_of(row), value_preview(row.value_preview, row.value_stored), moment(row.published_at)),
    )


def _holders(run: Run) -> Section:
    found = _rows(LockHolder, run).annotate(held_for=NOW - F("acquired_at")).defer("flow_id", "flow_type")
    return _section(
        run,
        LockHolder,
        "Locks held",
        ("Lock", "Held by", "For", "Since"),
        list(found.order_by("key")[: SHOWN + 1]),
        lambda row: (
            row.key,
            link(step_address(run.run_id, row.step_execution_id), row.step_execution_id),
            age(row.held_for),
            moment(row.acquired_at),
        ),
    )


def _waiters(run: Run) -> Section:
    found = _rows(LockWaiter, run).annotate(waiting_for=NOW - F("waiting_since")).defer("flow_id", "flow_type")
    return _section(
        run,
        LockWaiter,
        "Waiting for locks, first come first",
        ("Step", "Locks", "For", "Since"),
        list(found.order_by("ticket")[: SHOWN + 1]),
        lambda row: (
            link(step_address(run.run_id, row.step_execution_id), row.step_execution_id),
            ", ".join(row.exclusive),
            age(row.waiting_for),
            moment(row.waiting_since),
        ),
    )


def _events(run: Run) -> Section:
    found = _rows(EventRecord, run).annotate(**json_preview("data")).defer("data")
    return _section(
        run,
        EventRecord,
        "History, newest first",
        ("At", "Event", "Details"),
        list(found.order_by("-seq")[: SHOWN + 1]),
        lambda row: (moment(row.at), _page_of(row), value_preview(row.data_preview, row.data_stored)),
    )
