"""Calling an RPC's handler so that its caller gets an answer in time even when the handler hangs.

The handler runs in a thread of its own that borrows the caller's database connection. In time, the result comes
back and the caller goes on with its transaction. Too late, the caller takes the connection back (the thread can start
no statement on it any more), ends the session under a statement that may still run, and leaves the thread to itself.
"""

import contextvars
import os
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from dexflows.errors import RpcTimeoutError

_Answers = queue.SimpleQueue[tuple[Any, BaseException | None]]
_Job = tuple[contextvars.Context, Callable[[], Any], BaseDatabaseWrapper, _Answers]


class HandlerThread:
    """A thread that runs one handler after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="dexflows-rpc", daemon=True).start()

    def call(self, function: Callable[[], Any], connection: BaseDatabaseWrapper, timeout: float) -> Any:
        """The function's result, or what it raised; RpcTimeoutError when it takes longer than `timeout` seconds."""
        answers: _Answers = queue.SimpleQueue()
        connection.inc_thread_sharing()
        try:
            self._jobs.put((contextvars.copy_context(), function, connection, answers))
            result, error = answers.get(timeout=timeout)
        except queue.Empty:
            raise RpcTimeoutError(f"the RPC's handler ran past its timeout of {timeout:g} s") from None
        finally:
            connection.dec_thread_sharing()
        if error is not None:
            raise error
        return result

    def _serve(self) -> None:
        while True:
            context, function, connection, answers = self._jobs.get()
            connections[connection.alias] = connection
            try:
                answers.put((context.run(function), None))
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                answers.put((None, error))
            finally:
                del connections[connection.alias]
            del context, function, connection, answers


_threads = threading.local()


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
        end_session(connection)
        raise


def end_session(connection: BaseDatabaseWrapper) -> None:
    """Cancel what the session does and cut its line; the server rolls back and frees every lock."""
    session = connection.connection
    if session is None or session.closed:
        return
    with suppress(Exception):  # the request needs a connection of its own; should that fail, cutting the line is enough
        session.cancel_safe(timeout=1)
    with socket.socket(fileno=os.dup(session.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)
