"""Calling an RPC's handler so that its caller gets an answer in time even when the handler hangs.

The handler runs in a thread of its own that borrows the caller's database connection. In time, the result comes
back and the caller goes on with its transaction. Too late, the caller takes the connection back (the thread can start
no statement on it any more), ends the session under a statement that may still run, and leaves the thread to itself.
"""

import contextlib
import contextvars
import os
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from dexflows.errors import RpcTimeoutError

HANG_UP_SECONDS = 1.0
"""How long a caller waits for the server to end a session whose handler hangs."""

_Answers: TypeAlias = "queue.SimpleQueue[tuple[Any, BaseException | None]]"
_Job: TypeAlias = "tuple[contextvars.Context, Callable[[], Any], BaseDatabaseWrapper, _Answers]"
_Jobs: TypeAlias = "queue.SimpleQueue[_Job | None]"


class HandlerThread:
    """A thread that runs one handler after the other, and ends with the thread that it serves."""

    def __init__(self) -> None:
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name="dexflows-rpc", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End once the current handler has."""
        self._jobs.put(None)

    __del__ = end

    def call(self, function: Callable[[], Any], connection: BaseDatabaseWrapper, timeout: float) -> Any:
        """The function's result, or what it raised; RpcTimeoutError when it takes longer than `timeout` seconds."""
        answers: _Answers = queue.SimpleQueue()
        owner = connection._thread_ident  # type: ignore[attr-defined]
        # The connection has one owner at a time. Sharing it would let in a handler that was given up earlier.
        connection._thread_ident = self._thread.ident  # type: ignore[attr-defined]
        try:
            self._jobs.put((contextvars.copy_context(), function, connection, answers))
            result, error = answers.get(timeout=timeout)
        except queue.Empty:
            raise RpcTimeoutError(f"the RPC's handler ran past its timeout of {timeout:g} s") from None
        finally:
            connection._thread_ident = owner  # type: ignore[attr-defined]
        if error is not None:
            raise error
        return result


def _serve(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        context, function, connection, answers = job
        connections[connection.alias] = connection
        try:
            answers.put((context.run(function), None))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
            answers.put((None, error))
        finally:
            del connections[connection.alias]
        del job, context, function, connection, answers


_threads = threading.local()


def _forget_threads() -> None:
    """A forked child has its parent's variables, but none of its other threads."""
    global _threads
    _threads = threading.local()


os.register_at_fork(after_in_child=_forget_threads)


def call_within(function: Callable[[], Any], connection: BaseDatabaseWrapper, timeout: float) -> Any:
    """Run a function beside the calling thread, on the calling thread's connection and transaction.

    Raises RpcTimeoutError after `timeout` seconds; the database session is then gone, and with it the transaction
    and its locks.
    """
    thread = getattr(_threads, "handler", None)
    if thread is None:
        thread = _threads.handler = HandlerThread()
    try:
        return thread.call(function, connection, timeout)
    except RpcTimeoutError:
        _threads.handler = None
        thread.end()
        end_session(connection)
        raise


def end_session(connection: BaseDatabaseWrapper) -> None:
    """End the session under whatever it does, and wait a moment until the server has freed its locks.

    The line is cut for writing before the running statement is canceled, so no further one can follow. The server
    hangs up only after it has rolled back.
    """
    session = connection.connection
    if session is None or session.closed:
        return
    with socket.socket(fileno=os.dup(session.pgconn.socket)) as line, contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Exception):  # it needs a connection of its own, which may fail; the cut line is enough
            session.cancel_safe(timeout=1)
        line.settimeout(HANG_UP_SECONDS)
        while line.recv(65536):
            pass
        line.shutdown(socket.SHUT_RDWR)
