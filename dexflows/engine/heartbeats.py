"""The heartbeats of one attempt.

A heartbeat is a transaction of its own, whatever the handler does: what is written inside the handler's transaction
would be seen after its end only, and would keep the execution's row locked until then. Only where the attempt itself
was begun in a caller's transaction, as in a test, is there no other place; an `execute_atomic` handler that fails there
takes its heartbeats with it.
"""

import logging
from typing import Any

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from dexflows.conf import conf
from dexflows.engine import transitions
from dexflows.engine.claims import Claim
from dexflows.engine.leases import Holding
from dexflows.engine.timelimit import TimeLimit

logger = logging.getLogger(__name__)

BEAT = "SELECT dexflows_heartbeat(%s, %s, %s, %s, %s::jsonb, %s, %s)"


class Heart:
    """Writes heartbeats, and moves on what would end the attempt without one."""

    def __init__(self, claim: Claim, limit: TimeLimit, holding: Holding) -> None:
        self._claim = claim
        self._limit = limit
        self._holding = holding
        self._own: BaseDatabaseWrapper | None = None
        self._refused = False

    def beat(self, value: str) -> bool:
        """Keep a value, JSON text; False when it was not stored."""
        key = self._claim.key
        try:
            landed = self._write(value)
        except (OperationalError, InterfaceError) as error:
            logger.warning("no heartbeat of %s in run %s: %s", key.step_execution_id, key.run_id, error)
            self._connection().close_if_unusable_or_obsolete()
            return False
        if landed:
            self._limit.beat()
            self._holding.extend(self._limit.left)
            return True
        self._refused = True
        message = "the heartbeat of attempt %d of %s in run %s is refused: the attempt is not the current one any more"
        logger.warning(message, self._claim.attempt, key.step_execution_id, key.run_id)
        return False

    def is_stopped(self) -> bool:
        """Whether the attempt is no longer the current one, so that its result would be dropped."""
        return self._refused or not transitions.is_current(self._claim.key, self._claim.token)

    def close(self) -> None:
        """Give back the connection of its own."""
        if self._own is not None:
            self._own.close()

    def _write(self, value: str) -> bool:
        key, options = self._claim.key, self._claim.method_plan.options
        arguments: tuple[Any, ...] = (key.run_id, key.step_type, key.number, self._claim.token, value)
        with self._connection().cursor() as cursor:
            cursor.execute(BEAT, (*arguments, options.timeout, options.heartbeat_timeout))
            return bool(cursor.fetchone()[0])

    def _connection(self) -> BaseDatabaseWrapper:
        """The connection at hand, unless a transaction of the handler's is open on it."""
        at_hand = connections[conf().database]
        if self._claim.enclosed or (not at_hand.in_atomic_block and at_hand.get_autocommit()):
            return at_hand
        if self._own is None:
            self._own = at_hand.copy()
            self._own.inc_thread_sharing()
        return self._own
