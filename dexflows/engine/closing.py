"""Closing a run from outside, or at its timeout.

Whoever closes a run takes its gate exclusively before its row: what RPCs are just storing is part of the run, and one
that comes to store later finds it closed. No Step starts afterwards, and results of running attempts are dropped.
"""

import logging
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import step_keys
from dexflows.engine.outcomes import clean
from dexflows.errors import FlowClosingError, FlowNotActiveOrNotFoundError
from dexflows.states import RunStatus, StopType

STOP = "SELECT * FROM dexflows_stop(%s, %s, %s, %s, %s)"
OVERDUE = "SELECT * FROM dexflows_overdue(%s)"
TIME_OUT = "SELECT * FROM dexflows_time_out(%s)"

logger = logging.getLogger(__name__)

_STATUS = {
    StopType.CANCEL: RunStatus.CANCELED,
    StopType.TERMINATE: RunStatus.TERMINATED,
    StopType.FAIL: RunStatus.FAILED,
}


def stop(flow_id: str, run_id: UUID | None, stop_type: StopType, reason: str) -> None:
    """Close the running run. Raises FlowNotActiveOrNotFoundError when there is none."""
    arguments = (flow_id, run_id, _STATUS[stop_type], f"STOPPED_{stop_type}", clean(reason))
    outcome, stopped, status, rings = sql.call(conf().database, STOP, arguments)[0]
    check_running(flow_id, outcome, stopped, status)
    ring_after_commit(step_keys(stopped, rings))


def check_running(flow_id: str, outcome: str, run_id: UUID | None, status: str | None) -> None:
    """Raise for the outcomes 'missing', 'closed' and 'closing' of a change from outside."""
    if outcome == "missing":
        raise FlowNotActiveOrNotFoundError(f"there is no run of Flow {flow_id!r}")
    if outcome == "closed":
        raise FlowNotActiveOrNotFoundError(f"Flow {flow_id!r} is not running: its run {run_id} is {status}")
    if outcome == "closing":
        raise closing_error(flow_id, run_id)


def closing_error(flow_id: str, run_id: UUID | None) -> FlowClosingError:
    """What a run answers to changes that has ended and only waits for its Attribute Stores."""
    return FlowClosingError(
        f"Flow {flow_id!r} is closing: its run {run_id} has ended and waits for its values to be copied to the stores"
    )


def time_out(limit: int) -> int:
    """Let the timeouts that have come take effect, of up to `limit` runs; returns of how many it did."""
    overdue = [run_id for (run_id,) in sql.call(conf().database, OVERDUE, (limit,))]
    return sum(_time_out(run_id) for run_id in overdue)


def _time_out(run_id: UUID) -> bool:
    try:
        outcome, rings = sql.call(conf().database, TIME_OUT, (run_id,))[0]
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError:  # one run must not keep the others from their timeouts
        logger.exception("the timeout of run %s could not take effect", run_id)
        return False
    ring_after_commit(step_keys(run_id, rings))
    if outcome == "busy":
        logger.warning("the timeout of run %s waits for a transaction that holds the run", run_id)
    return outcome not in ("gone", "busy")
