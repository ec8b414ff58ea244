"""Reading runs, results and committed Attributes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q

from dexflows.attribute import Attribute, AttributeMap, AttributeMapInstance
from dexflows.conf import conf
from dexflows.errors import FlowNotFoundError
from dexflows.flow_result import Completion, FlowResult
from dexflows.models import AttributeValue, Run, StepExecution, SubFlowLink
from dexflows.models.raw_json import raw_json
from dexflows.states import RunStatus

Selector = Attribute[Any] | AttributeMapInstance


@dataclass(frozen=True, kw_only=True)
class FlowInfo:
    """A run as `describe_flow` tells it; times are aware datetimes.

    A SubFlow names the Flow ID whose Step started it.
    """

    flow_id: str
    run_id: str
    flow_type: str
    status: RunStatus
    started_at: datetime
    closed_at: datetime | None
    parent_flow_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubFlowInfo:
    """A run that a Step waits for, or has waited for, as the condition with this index."""

    step_execution_id: str
    condition: int
    child: Run


def find_run(flow_id: str, run_id: UUID | None = None) -> Run:
    """The given run, else the latest of the Flow ID. Raises FlowNotFoundError."""
    runs = Run.objects.using(conf().database).filter(flow_id=flow_id)
    if run_id is not None:
        runs = runs.filter(run_id=run_id)
    run = runs.order_by("-run_number").first()
    if run is None:
        raise FlowNotFoundError(f"there is no run of Flow {flow_id!r}" + (f" with ID {run_id}" if run_id else ""))
    return run


def describe(run: Run) -> FlowInfo:
    """What a caller is told about a run."""
    return FlowInfo(
        flow_id=run.flow_id,
        run_id=str(run.run_id),
        flow_type=run.flow_type,
        status=RunStatus(run.status),
        started_at=run.started_at,
        closed_at=run.closed_at,
        parent_flow_id=parent.flow_id if (parent := parent_of(run)) else None,
    )


def parent_of(run: Run) -> Run | None:
    """The run whose Step started this one as a SubFlow; None also when that is not kept any more."""
    if run.parent_run_id is None:
        return None
    return Run.objects.using(conf().database).filter(run_id=run.parent_run_id).first()


def children_of(run: Run, *, limit: int | None = None) -> list[SubFlowInfo]:
    """The SubFlows of a run, also those that it attached to, by Step execution and condition."""
    links = SubFlowLink.objects.using(conf().database).filter(run_id=run.run_id)
    found = list(links.order_by("step_type", "number", "condition")[:limit])
    children = Run.objects.using(conf().database).in_bulk([link.child_run_id for link in found])
    return [
        SubFlowInfo(
            step_execution_id=f"{link.step_type}-{link.number}",
            condition=link.condition,
            child=children[link.child_run_id],
        )
        for link in found
        if link.child_run_id in children
    ]


def result_of(run: Run) -> FlowResult:
    """A run's result so far."""
    ended = (
        StepExecution.objects.using(conf().database)
        .filter(run_id=run.run_id, output__isnull=False)
        .order_by(F("closed_at"), "step_type", "number")
        .values_list("step_type", "number", raw_json("output"))
    )
    completions = tuple(
        Completion(step_type=step_type, step_execution_id=f"{step_type}-{number}", raw=raw)
        for step_type, number, raw in ended
    )
    return FlowResult(
        status=RunStatus(run.status),
        error_type=run.error_type,
        error_message=run.error_message,
        completions=completions,
    )


def attribute_values(run: Run, selectors: Iterable[Selector]) -> list[Any]:
    """The committed values that are selected, in that order; the default or None where there is none."""
    wanted = [key_of(selector) for selector in selectors]
    condition = Q(pk__in=[])
    for _, name, instance in wanted:
        condition |= Q(name=name, instance=instance)
    rows = (
        AttributeValue.objects.using(conf().database)
        .filter(condition, run_id=run.run_id, entry="")
        .values_list("name", "instance", raw_json("value"))
    )
    found = {(name, instance): raw for name, instance, raw in rows}
    return [
        definition.fresh_default() if (raw := found.get((name, instance))) is None else definition.codec.decode(raw)
        for definition, name, instance in wanted
    ]


def key_of(selector: Selector) -> tuple[Attribute[Any] | AttributeMap[Any], str, str]:
    """Definition, name and instance; the instance of a singleton is ''."""
    if isinstance(selector, AttributeMapInstance):
        return selector.definition, selector.definition.name, selector.instance
    return selector, selector.name, ""
