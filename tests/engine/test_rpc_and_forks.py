"""RPCs of a process that was forked by one that had called RPCs."""

import os

from django.db import connections

from tests.engine.kit import Lab


def test_a_forked_child_calls_rpcs_with_a_thread_of_its_own(lab: Lab) -> None:
    lab.define(start=False)
    lab.start()
    lab.client.invoke_rpc(lab.flow.bump, "flow")
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            lab.client.invoke_rpc(lab.flow.bump, "flow")
        finally:
            connections.close_all()
            os._exit(0)
    os.waitpid(child, 0)
    assert lab.client.get_attribute("flow", lab.flow.c) == 2
