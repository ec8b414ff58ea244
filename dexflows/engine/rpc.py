"""Answering RPCs: one transaction, in the calling process, never waiting for a lock.

    begin (locks tried, state read) ── handler ── store (run still open? Attributes, events, next Steps), COMMIT
      └── busy: 409, nothing happened   └── raises or too late: rolled back           └── waiters rung

An RPC passes its run's gate only to store, when its handler is done: so no handler holds a close up, and one that
comes too late is undone as a whole. Without locks, and with nothing to store, it is one plain statement.

The locks are advisory locks of the transaction, so whatever ends it frees them: commit, rollback, a closed or killed
connection, the server's own timeout. An RPC leaves no row behind, so a Step that waits for it is rung by a look at
the queue after the commit (see `claims.py` for the other half of that hand-over).
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from dexflows import sql
from dexflows.conf import conf
from dexflows.context import Context
from dexflows.engine.closing import closing_error
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.handler_thread import call_within
from dexflows.engine.handlers import buffers_of, effects_of, run_handler
from dexflows.engine.keys import LoadSet, LockSet, step_keys
from dexflows.engine.movements import movement_of
from dexflows.engine.outcomes import Effects, detail_of, is_message_gone, is_restartable
from dexflows.engine.transitions import as_json
from dexflows.errors import (
    ChannelMessageNotFoundError,
    FlowDefinitionError,
    FlowNotActiveOrNotFoundError,
    InvalidRequestError,
    InvalidStepResultError,
    RpcLockConflictError,
    RpcTimeoutError,
    UnavailableError,
    WorkerInvocationError,
)
from dexflows.options import RPCInvokeOptions
from dexflows.registry import FlowDefinition, RpcDefinition
from dexflows.rpc_result import RPCResult
from dexflows.scope import check_channel_scope, check_scope
from dexflows.states import RunStatus

logger = logging.getLogger(__name__)
T = TypeVar("T")
Statement = tuple[str, tuple[Any, ...]]

BEGIN = "SELECT * FROM dexflows_rpc_begin(%s, %s, %s, %s::text[], %s::text[], %s::jsonb, %s)"
STORE = "SELECT dexflows_rpc_commit(%s, %s, %s::jsonb, %s::jsonb, %s::jsonb)"
WAITING = "SELECT * FROM dexflows_waiting(%s, %s::text[], %s::text[])"
BOUND = """
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000 THEN set_config('transaction_timeout', %s, true)
    ELSE set_config('statement_timeout', %s, true) || set_config('idle_in_transaction_session_timeout', %s, true) END
"""
_held: ContextVar[tuple[tuple[UUID, LockSet], ...]] = ContextVar("dexflows_rpc_locks", default=())
"""The locks of the RPCs whose handlers this code runs in, outermost first."""

RUN_CLOSED = "DF001"
"""The SQLSTATE with which `sql/rpc_commit.sql` undoes an RPC whose run has closed before it could write."""
RUN_CLOSING = "DF003"
"""Likewise, when the run has ended and waits for its Attribute Stores."""

SERVER_MARGIN = 0.5
"""Seconds after the timeout at which the server ends the transaction by itself, should this process be unable to."""
RESTARTS = 5
"""How often a transaction is run anew after a deadlock or serialization failure."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A run as an RPC saw it, with the locks held."""

    flow_id: str
    run_id: UUID
    flow_type: str
    run_queue: str
    status: RunStatus
    attributes: str


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of an RPC."""

    flow: FlowDefinition
    rpc: RpcDefinition
    flow_id: str
    run_id: UUID | None
    arguments: tuple[Any, ...]
    locks: LockSet
    load: LoadSet

    @classmethod
    def of(
        cls,
        flow: FlowDefinition,
        rpc: RpcDefinition,
        flow_id: str,
        run_id: UUID | None,
        input: str,
        options: RPCInvokeOptions,
    ) -> "Invocation":
        arguments = (rpc.input_codec.decode(input),) if rpc.has_input and rpc.input_codec else ()
        named = (options.lock_attribute_map_instances, (), options.load_attribute_map_instances)
        try:
            check_scope(f"the call of {rpc.name}", flow.attributes, *named)
            check_channel_scope(f"the call of {rpc.name}", flow.channels, options.load_channel_map_instances)
        except FlowDefinitionError as error:
            raise InvalidRequestError(f"Flow {flow.flow_type}: {error}") from error
        locks = LockSet.of((*rpc.locks, *options.lock_attribute_map_instances))
        instances = (*rpc.load_instances, *options.load_attribute_map_instances)
        channels = (*rpc.load_channels, *options.load_channel_map_instances)
        load = LoadSet.of(flow.attributes, rpc.load_maps, instances, channels)
        return cls(flow, rpc, flow_id, run_id, arguments, locks, load)


def invoke(call: Invocation) -> str:
    """Run an RPC and return its output as JSON. Raises what spec section 8 says; then nothing has happened."""
    try:
        return restarting(lambda: _invoke_once(call))
    except RunClosedMeanwhileError:
        # Another run of this Flow ID may have taken its place.
        return restarting(lambda: _invoke_once(call))


class RunClosedMeanwhileError(FlowNotActiveOrNotFoundError):
    """The run closed after an RPC had read it and before it could write."""


def _invoke_once(call: Invocation) -> str:
    connection = connections[conf().database]
    nested = connection.in_atomic_block
    started = time.monotonic()
    try:
        return _locking(call, connection, nested) if call.locks.exclusive else _lock_free(call, connection, nested)
    except FlowNotActiveOrNotFoundError:
        raise
    except BaseException as error:
        overdue = (
            isinstance(error, OperationalError | InterfaceError) and time.monotonic() - started >= call.rpc.timeout
        )
        if (overdue or isinstance(error, RpcTimeoutError)) and not nested:
            _leave_to_zombie(connection)
        _ring_waiters_after(call)
        if overdue:
            raise RpcTimeoutError(f"RPC {call.rpc.name} ran past its timeout of {call.rpc.timeout:g} s") from error
        if isinstance(error, IntegrityError | DataError | InternalError):
            raise WorkerInvocationError(type(error).__name__, detail_of(error)) from error
        raise


def _locking(call: Invocation, connection: BaseDatabaseWrapper, nested: bool) -> str:
    """All of it in one transaction: BEGIN, begin, and then store, COMMIT and look for waiters in one round trip."""
    with transaction.atomic(using=conf().database):
        opened = open_run(call.flow_id, call.run_id, True, call.locks, call.load, None if nested else _bound(call))
        output, payload = _handled(call, opened, connection)
        statements = [_storing(opened, payload)]
        if nested:
            _run_statements(opened, statements)
            _ring_waiters_after(call)
        else:
            _run_statements(opened, [*statements, ("COMMIT", ()), (WAITING, _waiting_for(call))])
    return output


def _lock_free(call: Invocation, connection: BaseDatabaseWrapper, nested: bool) -> str:
    """Reading takes one round trip: a transaction begins only when the handler, or what it buffered, needs one."""
    opened = open_run(call.flow_id, call.run_id, False, call.locks, call.load)
    with transaction.atomic(using=conf().database):
        with connection.execute_wrapper(_Bounding(connection, _bound(call))) if not nested else nullcontext():
            output, payload = _handled(call, opened, connection)
        if payload:
            if opened.status is not RunStatus.RUNNING:
                raise FlowNotActiveOrNotFoundError(f"Flow {call.flow_id!r} is {opened.status} and takes no more writes")
            finish: list[Statement] = [] if nested else [("COMMIT", ())]
            _run_statements(opened, [_storing(opened, payload), *finish])
    return output


class _Bounding:
    """Gives the transaction of an RPC that opened none so far its limit, before the handler's first statement."""

    def __init__(self, connection: BaseDatabaseWrapper, milliseconds: str) -> None:
        self._connection = connection
        self._limit: str | None = milliseconds

    def __call__(self, execute: Callable[..., Any], *call: Any) -> Any:
        limit, self._limit = self._limit, None
        if limit is not None:
            sql.call(self._connection.alias, BOUND, (limit, limit, limit))
        return execute(*call)


def _bound(call: Invocation) -> str:
    return str(int((call.rpc.timeout + SERVER_MARGIN) * 1000))


def _handled(call: Invocation, opened: Opened, connection: BaseDatabaseWrapper) -> tuple[str, dict[str, Any]]:
    if opened.flow_type != call.flow.flow_type:
        mismatch = f"Flow {call.flow_id!r} is a {opened.flow_type}, not a {call.flow.flow_type}"
        raise FlowNotActiveOrNotFoundError(mismatch)
    _refuse_locks_of_callers(opened, call.locks)
    handle = partial(_handle, call, opened, connection)
    handled: tuple[str, dict[str, Any]] = call_within(handle, connection, call.rpc.timeout)
    _check_committable(connection)
    return handled


def _refuse_locks_of_callers(opened: Opened, locks: LockSet) -> None:
    """A handler that calls an RPC does so in its own session, to which the database gives its advisory locks again."""
    busy = [key for run_id, held in _held.get() if run_id == opened.run_id for key in held.conflicts(locks)]
    if busy:
        raise RpcLockConflictError(tuple(dict.fromkeys(busy)))


def _leave_to_zombie(connection: BaseDatabaseWrapper) -> None:
    """Let the calling thread make a connection object of its own: a handler that hangs still has this one."""
    connection.close()
    del connections[connection.alias]


def _check_committable(connection: BaseDatabaseWrapper) -> None:
    """A handler that swallowed a database error would see its transaction rolled back without a word."""
    session = connection.connection
    usable = session is not None and session.info.transaction_status in (
        TransactionStatus.INTRANS,
        TransactionStatus.IDLE,
    )
    if not usable or connection.needs_rollback:
        detail = "the handler went on after a database error, so nothing can be committed"
        raise WorkerInvocationError("TransactionManagementError", detail)


def _ring_waiters_after(call: Invocation) -> None:
    """Ring the Steps that the call may have kept waiting: its locks are free now, whether it succeeded or not.

    Inside a caller's transaction that is at its commit.
    """
    if not call.locks.exclusive:
        return
    with suppress(OperationalError, InterfaceError):  # the database is away, and a sweep will find them
        transaction.on_commit(partial(_ring_waiters, call), using=conf().database, robust=True)


def _ring_waiters(call: Invocation) -> None:
    for run_id, rings in sql.call(conf().database, WAITING, _waiting_for(call)):
        ring_after_commit(step_keys(run_id, rings))


def _waiting_for(call: Invocation) -> tuple[Any, ...]:
    return (call.flow_id, *call.locks.arrays)


def _storing(opened: Opened, payload: dict[str, Any]) -> Statement:
    parts = (as_json(payload.get(part)) for part in ("effects", "movements", "cancel"))
    return (STORE, (opened.run_id, opened.flow_type, *parts))


def _run_statements(opened: Opened, statements: list[Statement]) -> None:
    """Run the end of an RPC and ring for the Steps that its statements name.

    A COMMIT among them ends the transaction, and Django's own commit after it has nothing left to do.
    """
    try:
        results = sql.call_all(conf().database, statements)
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) == RUN_CLOSED:
            raise RunClosedMeanwhileError(f"run {opened.run_id} has closed and takes no more writes") from error
        if getattr(error.__cause__, "sqlstate", None) == RUN_CLOSING:
            raise closing_error(opened.flow_id, opened.run_id) from error
        if is_message_gone(error):
            raise ChannelMessageNotFoundError(detail_of(error)) from error
        raise
    for (statement, _), rows in zip(statements, results, strict=True):
        for row in rows:
            run_id, rings = (opened.run_id, row[0]) if statement is STORE else row
            ring_after_commit(step_keys(run_id, rings))


def _handle(call: Invocation, opened: Opened, connection: BaseDatabaseWrapper) -> tuple[str, dict[str, Any]]:
    """Run the handler and encode what it answered; runs beside the caller's thread."""
    context = Context(
        flow_id=call.flow_id,
        run_id=str(opened.run_id),
        **buffers_of(call.flow, call.load, opened.attributes),
    )
    _held.set((*_held.get(), (opened.run_id, call.locks)))
    try:
        result = run_handler(call.rpc.function, call.flow.flow, context, *call.arguments)
        output, payload = _encode(call, opened, RPCResult() if result is None else result)
    except Exception as error:
        if is_restartable(error) or connection.connection is None or connection.connection.closed:
            raise
        logger.info("RPC %s of %s raised %s", call.rpc.name, call.flow.flow_type, type(error).__name__, exc_info=True)
        raise WorkerInvocationError(type(error).__name__, detail_of(error)) from error
    return output, payload | effects_of(call.flow, context).to_payload()


def _encode(call: Invocation, opened: Opened, result: object) -> tuple[str, dict[str, Any]]:
    if not isinstance(result, RPCResult):
        raise InvalidStepResultError(f"an RPC must return an RPCResult or None, not {type(result).__name__}")
    output = call.rpc.output_codec.encode(result.output, key="output", limit=conf().max_value_bytes)
    payload: dict[str, Any] = {}
    if result.canceling_steps:
        payload["cancel"] = [call.flow.resolve_step(step).step_type for step in result.canceling_steps]
    if result.next_steps:
        movements = [movement_of(call.flow, each, opened.run_queue) for each in result.next_steps]
        payload["movements"] = [movement.to_payload() for movement in movements]
    return output, payload


def restarting(work: Callable[[], T]) -> T:
    """Run one transaction, anew when the database undid it only because of others.

    Raises UnavailableError when the database cannot be reached. Inside a caller's transaction nothing is run anew:
    that transaction is the caller's to restart, so the caller gets the OperationalError.
    """
    nested = connections[conf().database].in_atomic_block
    tries = 1 if nested else RESTARTS
    while True:
        tries -= 1
        try:
            return work()
        except (OperationalError, InterfaceError) as error:
            if is_restartable(error) and tries > 0:
                continue
            if is_restartable(error) and nested:
                raise
            connections[conf().database].close_if_unusable_or_obsolete()
            raise UnavailableError("the database cannot be reached now") from error


def open_run(
    flow_id: str,
    run_id: UUID | None,
    active: bool,
    locks: LockSet,
    load: LoadSet,
    server_timeout: str | None = None,
) -> Opened:
    """Find the run a call means, take its locks inside the caller's transaction, and read its state.

    Raises FlowNotActiveOrNotFoundError and RpcLockConflictError; the caller's transaction has to be rolled back then.
    """
    arguments = (flow_id, run_id, active, *locks.arrays, load.json, server_timeout)
    outcome, run, flow_type, queue, status, busy, attributes = sql.call(conf().database, BEGIN, arguments)[0]
    match outcome:
        case "begun":
            return Opened(flow_id, run, flow_type, queue, RunStatus(status), attributes)
        case "conflict":
            raise RpcLockConflictError(tuple(dict.fromkeys(busy)))
        case "closing":
            raise closing_error(flow_id, run)
        case "closed":
            raise FlowNotActiveOrNotFoundError(f"Flow {flow_id!r} is not running: its run {run} is {status}")
        case _:
            raise FlowNotActiveOrNotFoundError(f"there is no run of Flow {flow_id!r}")


def store(opened: Opened, effects: Effects) -> None:
    """Write Attributes to a running run, in the caller's transaction."""
    _run_statements(opened, [_storing(opened, effects.to_payload())])
