"""A process that calls Flows, as a web server would: `python -m tests.stories.caller [--rpc] FLOW_ID...`."""

import json
import os
import sys
import time
from itertools import pairwise

import django


def main() -> None:
    """Start each Flow, with `--rpc` add a Step to it, and print how long each call took, in seconds, a line a Flow."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.stories.settings")
    django.setup()
    from celery import current_app
    from django.db import connection

    from dexflows.client import Client
    from tests.stories.flows import Order, story_flow

    client = Client()
    connection.ensure_connection()
    current_app.connection_for_write().get_transport_cls()
    with_rpc = sys.argv[1] == "--rpc"
    for flow_id in sys.argv[1 + with_rpc :]:
        times = [time.monotonic()]
        client.start_flow(story_flow, flow_id, Order("CountStep", 2.0))
        times.append(time.monotonic())
        if with_rpc:
            client.invoke_rpc(story_flow.go_beside, flow_id)
            times.append(time.monotonic())
        print(json.dumps([after - before for before, after in pairwise(times)]), flush=True)


if __name__ == "__main__":
    main()
