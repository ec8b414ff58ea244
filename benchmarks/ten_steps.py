"""The driver of dexflows: starts Flows in a caller's process, one transaction each, and waits until all have closed."""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import django

from benchmarks.driver import serve, timed

END_SECONDS = 60
PAUSE, PAUSE_ALONE = 0.02, 0.001
OPEN = """
    SELECT count(*) FILTER (WHERE status = 'RUNNING'), count(*) FILTER (WHERE status = 'COMPLETED')
    FROM dexflows_run WHERE run_id = ANY(%s)
"""
DURABILITY = os.environ.get("BENCHMARK_DURABILITY", "SYNC")
CALLERS = 4
_numbers = itertools.count()
_callers = ThreadPoolExecutor(CALLERS)


def run(flows: int) -> None:
    """Start that many Flows, then wait for all."""
    from benchmarks.flows import ten_steps
    from dexflows import FlowConfig, StartFlowOptions, StepDurability
    from dexflows.client import Client

    options = StartFlowOptions(config_override=FlowConfig(step_durability=StepDurability(DURABILITY)))
    start = partial(Client().start_flow, ten_steps, input=0, options=options)
    flow_ids = [f"benchmark-{os.getpid()}-{next(_numbers)}" for _ in range(flows)]
    started = _callers.map(start, flow_ids) if flows > 1 else map(start, flow_ids)
    _await_completion([UUID(run_id) for run_id in started])


def _await_completion(run_ids: list[UUID]) -> None:
    """Look at all runs with one query, so that waiting takes no time from the workers."""
    from django.db import connection

    end = time.monotonic() + END_SECONDS
    while time.monotonic() < end:
        with connection.cursor() as cursor:
            cursor.execute(OPEN, [run_ids])
            still_running, completed = cursor.fetchone()
        if not still_running:
            break
        time.sleep(PAUSE if len(run_ids) > 1 else PAUSE_ALONE)
    if completed != len(run_ids):
        raise RuntimeError(f"{completed} of {len(run_ids)} Flows completed within {END_SECONDS} s")


if __name__ == "__main__":
    django.setup()
    serve(run=run, latency=lambda count: timed(lambda: run(1), count))
