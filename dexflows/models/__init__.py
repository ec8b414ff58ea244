"""The tables: one module each, with its constraints. Only `dexflows.engine` writes to them."""

from dexflows.models.attribute import AttributeValue
from dexflows.models.event import Event
from dexflows.models.lock_hold import LockHold
from dexflows.models.lock_wait import LockWait
from dexflows.models.run import Run
from dexflows.models.step_execution import StepExecution
from dexflows.models.views import AttributeRecord, EventRecord, LockHolder, LockWaiter, StepRecord

__all__ = [
    "AttributeRecord",
    "AttributeValue",
    "Event",
    "EventRecord",
    "LockHold",
    "LockHolder",
    "LockWait",
    "LockWaiter",
    "Run",
    "StepExecution",
    "StepRecord",
]
