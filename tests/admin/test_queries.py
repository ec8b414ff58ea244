"""What the pages cost: the same number of queries whatever there is, no counts, and no table read from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client as WebClient

from dexflows.models import AttributeRecord, EventRecord, LockHolder, LockWaiter, MessageRecord, Run, StepRecord
from dexflows.states import StepState
from tests.admin.addresses import MODELS, first_of, list_of, page_of
from tests.admin.population import add_runs, analyze
from tests.admin.rows import make_busy_run

pytestmark = pytest.mark.django_db

LARGE = {f"dexflows_{table}" for table in ("run", "step_execution", "attribute", "event", "channel_message")}
SORTED_AT_MOST = 1000


@pytest.mark.parametrize("model", MODELS)
def test_the_number_of_queries_does_not_grow(model: type[Model], queries_of: Callable[[str], list[str]]) -> None:
    run = make_busy_run("one")
    for page in (page_of(run), page_of(first_of(model))):
        queries_of(page)  # some tables of Django are read once in a process
    few = [len(queries_of(address)) for address in (list_of(model), page_of(first_of(model)), page_of(run))]
    run = make_busy_run("many", size=60)
    add_runs(200)
    many = [len(queries_of(address)) for address in (list_of(model), page_of(first_of(model)), page_of(run))]
    assert few == many
    assert few[0] <= 4
    assert few[1] <= 13
    assert few[2] <= 13


def addresses(web: WebClient) -> Iterator[str]:
    """Every kind of page, and the second page of each list."""
    run, closed = Run.objects.filter(status="RUNNING").first(), Run.objects.filter(status="COMPLETED").first()
    lists = [
        *(list_of(model) for model in MODELS),
        *(list_of(Run, status=status) for status in ("RUNNING", "COMPLETED", "FAILED", "CANCELED")),
        list_of(Run, flow_type="Type3"),
        list_of(Run, flow_type="Type3", status="FAILED"),
        list_of(Run, flow_type="Nobody"),
        list_of(Run, q="order-1"),
        list_of(Run, q="nobody"),
        list_of(Run, q=str(run.run_id)),
        *(list_of(StepRecord, state=state) for state in ("open", *StepState)),
        *(list_of(model, run_id=closed.run_id) for model in MODELS[1:]),
        *(list_of(model, q="order-77") for model in MODELS[1:]),
        list_of(StepRecord, run_id=run.run_id, state="FAILED"),
        list_of(AttributeRecord, run_id=run.run_id, q="total"),
    ]
    for address in lists:
        yield address
        page: Any = web.get(address)
        if following := page.context["cl"].next_page_query:
            yield address.split("?")[0] + following
    for row in (run, closed, *(first_of(each) for each in (StepRecord, AttributeRecord, EventRecord))):
        yield page_of(row)
    yield page_of(first_of(LockHolder))
    yield page_of(first_of(LockWaiter))
    yield page_of(first_of(MessageRecord))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def faults_of(sql: str) -> list[str]:
    """What a statement's plan reads or sorts too much of."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        (answer,) = cursor.fetchone()
    plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    faults = []
    for node in nodes(plan):
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE:
            faults.append(f"reads all of {node['Relation Name']}")
        if node.get("Rows Removed by Filter", 0) > SORTED_AT_MOST:
            faults.append(f"reads and drops {node['Rows Removed by Filter']} rows")
        if node["Node Type"] == "Sort" and node["Plans"][0]["Actual Rows"] > SORTED_AT_MOST:
            faults.append(f"sorts {node['Plans'][0]['Actual Rows']} rows")
    return faults


def test_no_page_counts_or_scans_a_table(web: WebClient, queries_of: Callable[[str], list[str]]) -> None:
    add_runs(20_000)
    analyze()
    faults = []
    seen = 0
    for address in addresses(web):
        for sql in queries_of(address):
            if '"dexflows_' not in sql:
                continue
            seen += 1
            assert "COUNT(" not in sql.upper()
            faults += [f"{address}: {fault}: {sql}" for fault in faults_of(sql)]
    assert seen > 60
    assert faults == []


def test_the_check_of_plans_finds_a_scan_and_a_large_sort() -> None:
    add_runs(3_000)
    analyze()
    assert faults_of("SELECT * FROM \"dexflows_run\" WHERE error_message = 'x'")
    assert faults_of('SELECT * FROM "dexflows_v1_step" ORDER BY queue, worker LIMIT 1')
