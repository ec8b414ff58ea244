"""Attempts inside a transaction that is the caller's, as in a test that is rolled back at its end.

Elsewhere a handler, and what settles it, have transactions of their own, and an error of the database undoes only
those. Here savepoints stand in for them, so that it does not break the caller's transaction.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from dexflows.conf import conf
from dexflows.engine import handlers
from dexflows.engine.claims import Claim
from dexflows.engine.leases import Holding
from dexflows.engine.outcomes import Outcome, Raised

Execute: TypeAlias = Callable[..., Any]

_WENT_ON = Raised(
    error_type="TransactionManagementError",
    detail="the handler went on after a database error, for which this transaction, being its caller's, is no place: "
    "let it try the statement in a transaction.atomic() block",
    retryable=False,
)


@contextmanager
def settling() -> Iterator[None]:
    """A block for one statement: within a caller's transaction it has a savepoint, without a further round trip."""
    connection = connections[conf().database]
    if not connection.in_atomic_block:
        yield
        return
    try:
        with connection.execute_wrapper(_in_savepoint):
            yield
    except DatabaseError:
        transaction.savepoint_rollback("dexflows_settling", using=connection.alias)
        raise


def _in_savepoint(execute: Execute, statement: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    result = execute(f"SAVEPOINT dexflows_settling; {statement}; RELEASE dexflows_settling", params, many, context)
    context["cursor"].nextset()
    return result


def call(claim: Claim, holding: Holding) -> Outcome:
    """Run the handler of a claimed attempt to its end.

    Within a caller's transaction, what it wrote by itself stays when it raises, as it does elsewhere; unless it broke
    the transaction, which is then undone to where the handler began.
    """
    connection = connections[conf().database]
    if not connection.in_atomic_block:
        return handlers.call(claim, holding)
    statements = _Statements(connection)
    with connection.execute_wrapper(statements):
        outcome = handlers.call(claim, holding)
    if statements.savepoint is None:
        return outcome
    if not isinstance(outcome, Raised) and not _is_broken(connection):
        outcome = _checked(connection, outcome)
    if not _is_broken(connection):
        transaction.savepoint_commit(statements.savepoint, using=connection.alias)
        return outcome
    connection.needs_rollback = False
    transaction.savepoint_rollback(statements.savepoint, using=connection.alias)
    return outcome if isinstance(outcome, Raised) else _WENT_ON


def _checked(connection: BaseDatabaseWrapper, outcome: Outcome) -> Outcome:
    """The outcome, unless a commit would refuse what the handler wrote: some constraints are checked only then."""
    try:
        connection.check_constraints()
    except DatabaseError as error:
        connection.needs_rollback = True
        return Raised.by(error)
    return outcome


class _Statements:
    """Sets a savepoint before the first statement of a handler; most have none."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._begun = False
        self.savepoint: str | None = None

    def __call__(self, execute: Execute, *call: Any) -> Any:
        if not self._begun:
            self._begun = True
            self.savepoint = transaction.savepoint(using=self._connection.alias)
        return execute(*call)


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    session = connection.connection
    return connection.needs_rollback or session.info.transaction_status == TransactionStatus.INERROR
