"""Attempts inside a transaction that is the caller's, as in a test that is rolled back at its end.

Elsewhere a handler, and what settles it, have transactions of their own, and an error of the database undoes only
those. Here savepoints stand in for them, so that it does not break the caller's transaction.
"""

from contextlib import AbstractContextManager, nullcontext

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from dexflows.conf import conf
from dexflows.engine import handlers
from dexflows.engine.claims import Claim
from dexflows.engine.outcomes import Outcome, Raised

_WENT_ON = Raised(
    error_type="TransactionManagementError",
    detail="the handler went on after a database error, for which this transaction, being its caller's, is no place: "
    "let it try the statement in a transaction.atomic() block",
    retryable=False,
)


def savepoint() -> AbstractContextManager[None]:
    """A transaction within the caller's; outside of one, nothing."""
    using = conf().database
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()


def call(claim: Claim) -> Outcome:
    """Run the handler of a claimed attempt to its end.

    Within a caller's transaction, what it wrote by itself stays when it raises, as it does elsewhere; unless it broke
    the transaction, which is then undone to where the handler began.
    """
    connection = connections[conf().database]
    if not connection.in_atomic_block:
        return handlers.call(claim)
    began = transaction.savepoint(using=connection.alias)
    outcome = handlers.call(claim)
    if not _is_broken(connection):
        transaction.savepoint_commit(began, using=connection.alias)
        return outcome
    connection.needs_rollback = False
    transaction.savepoint_rollback(began, using=connection.alias)
    return outcome if isinstance(outcome, Raised) else _WENT_ON


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    session = connection.connection
    return connection.needs_rollback or session.info.transaction_status == TransactionStatus.INERROR
