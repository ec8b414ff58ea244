"""The tables: one module each, with its constraints. Only `dexflows.engine` writes to them."""

from dexflows.models.attribute import AttributeValue
from dexflows.models.channel_message import QueuedMessage
from dexflows.models.event import Event
from dexflows.models.lock_hold import LockHold
from dexflows.models.lock_wait import LockWait
from dexflows.models.run import Run
from dexflows.models.step_execution import StepExecution
from dexflows.models.store_write import StoreWrite
from dexflows.models.sub_flow import SubFlowLink
from dexflows.models.timer_skip import TimerSkip
from dexflows.models.views import AttributeRecord, EventRecord, LockHolder, LockWaiter, MessageRecord, StepRecord

__all__ = [
    "AttributeRecord",
    "AttributeValue",
    "Event",
    "EventRecord",
    "LockHold",
    "LockHolder",
    "LockWait",
    "LockWaiter",
    "MessageRecord",
    "QueuedMessage",
    "Run",
    "StepExecution",
    "StepRecord",
    "StoreWrite",
    "SubFlowLink",
    "TimerSkip",
]
