"""Flows in tests, with a clock that the test moves.

With pytest, `pytest_plugins = ["dexflows.testing"]` in a project's top `conftest.py` gives two fixtures:

- `flows` (`VirtualFlows`): in the test's own transaction; Steps run when the test says so, time stands still until it
  is moved, and everything rolls back.
- `flows_live` (`LiveFlows`): real commits, threads that run Steps by themselves, and a clock that goes on.

`virtual_flows()` and `live_flows()` give the same as context managers, for other test runners.
"""

from importlib.util import find_spec

from dexflows.testing.idle import NotIdleError
from dexflows.testing.live import LiveFlows, live_flows
from dexflows.testing.virtual import VirtualFlows, virtual_flows

if find_spec("pytest") is not None:
    from dexflows.testing.fixtures import flows, flows_live  # noqa: F401  (pytest finds them here)

__all__ = ["LiveFlows", "NotIdleError", "VirtualFlows", "live_flows", "virtual_flows"]
