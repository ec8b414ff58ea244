"""The driver of dexflows: starts Flows in a caller's process and waits for their results."""

import itertools
import os

import django

from benchmarks.driver import serve, timed

END_SECONDS = 60
_numbers = itertools.count()


def run(flows: int) -> None:
    """Start that many Flows, then wait for all."""
    from dexflows.client import Client

    from benchmarks.flows import STEPS, ten_steps

    client = Client()
    flow_ids = [f"benchmark-{os.getpid()}-{next(_numbers)}" for _ in range(flows)]
    for flow_id in flow_ids:
        client.start_flow(ten_steps, flow_id, 0)
    for flow_id in flow_ids:
        if client.wait_for_flow(flow_id, END_SECONDS).single_output(int) != STEPS:
            raise RuntimeError(f"{flow_id} ended with the wrong value")


if __name__ == "__main__":
    django.setup()
    serve(run=run, latency=lambda count: timed(lambda: run(1), count))
