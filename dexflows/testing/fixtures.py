"""The fixtures of pytest; both build on those of pytest-django."""

from collections.abc import Iterator

import pytest

from dexflows.testing.live import LiveFlows, live_flows
from dexflows.testing.virtual import VirtualFlows, virtual_flows


@pytest.fixture
def flows(db: None) -> Iterator[VirtualFlows]:
    """Run Flows within the test's transaction, by a clock that stands still until the test moves it."""
    with virtual_flows() as virtual:
        yield virtual


@pytest.fixture
def flows_live(transactional_db: None) -> Iterator[LiveFlows]:
    """Run Flows in threads with connections of their own, by a clock that goes on and can be put forward."""
    with live_flows() as live:
        yield live
