"""Closing a run from outside.

Whoever closes a run takes its gate exclusively before its row: what RPCs are just storing is part of the run, and one
that comes to store later finds it closed. No Step starts afterwards, and results of running attempts are dropped.
"""

from uuid import UUID

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import step_keys
from dexflows.engine.outcomes import clean
from dexflows.errors import FlowNotActiveOrNotFoundError
from dexflows.states import RunStatus, StopType

STOP = "SELECT * FROM dexflows_stop(%s, %s, %s, %s, %s)"

_STATUS = {
    StopType.CANCEL: RunStatus.CANCELED,
    StopType.TERMINATE: RunStatus.TERMINATED,
    StopType.FAIL: RunStatus.FAILED,
}


def stop(flow_id: str, run_id: UUID | None, stop_type: StopType, reason: str) -> None:
    """Close the running run. Raises FlowNotActiveOrNotFoundError when there is none."""
    arguments = (flow_id, run_id, _STATUS[stop_type], f"STOPPED_{stop_type}", clean(reason))
    outcome, stopped, status, rings = sql.call(conf().database, STOP, arguments)[0]
    if outcome == "missing":
        raise FlowNotActiveOrNotFoundError(f"there is no run of Flow {flow_id!r}")
    if outcome == "closed":
        raise FlowNotActiveOrNotFoundError(f"Flow {flow_id!r} is not running: its run {stopped} is {status}")
    ring_after_commit(step_keys(stopped, rings))
