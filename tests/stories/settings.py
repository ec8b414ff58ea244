"""The project's settings with short times, for the worker processes of tests."""

import json
import os

from config.settings import *  # noqa: F403

DEXFLOWS = {
    "LEASE_SECONDS": 3.0,
    "HEARTBEAT_SECONDS": 0.8,
    "SWEEP_SECONDS": 0.5,
    "SHUTDOWN_GRACE_SECONDS": 1.0,
    **json.loads(os.environ.get("TEST_DEXFLOWS", "{}")),
}
