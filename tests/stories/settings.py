"""The project's settings with short times, for the worker processes of tests."""

import json
import os

from config.settings import *  # noqa: F403
from config.settings import CELERY_BROKER_TRANSPORT_OPTIONS, DATABASE

DEXFLOWS = {
    "LEASE_SECONDS": 3.0,
    "HEARTBEAT_SECONDS": 0.8,
    "SWEEP_SECONDS": 0.5,
    "SHUTDOWN_GRACE_SECONDS": 1.0,
    **json.loads(os.environ.get("TEST_DEXFLOWS", "{}")),
}
if pool := os.environ.get("TEST_POOL"):
    DATABASE["CONN_MAX_AGE"] = 0
    DATABASE["OPTIONS"]["pool"] = json.loads(pool)
if visibility := os.environ.get("TEST_VISIBILITY_TIMEOUT"):
    CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"] = float(visibility)
