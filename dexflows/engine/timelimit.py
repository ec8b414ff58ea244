"""Interrupting a handler that runs past its timeout, or gives no heartbeat in time."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from django.db import connections
from psycopg.pq import TransactionStatus

from dexflows.conf import conf


class MethodTimeoutError(BaseException):
    """A handler ran past its method timeout. No subclass of Exception, so that `except Exception` cannot swallow it."""


class HeartbeatTimeoutError(BaseException):
    """A handler gave no heartbeat in time. No subclass of Exception either."""


class TimeLimit:
    """How long a handler may run: `timeout` seconds in all, `heartbeat` seconds from one heartbeat to the next."""

    def __init__(self, timeout: float, heartbeat: float | None) -> None:
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._end = time.monotonic() + timeout
        self._deadline = self._end
        self.beat()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def beat(self) -> None:
        """Note a heartbeat: the time until the next one begins anew."""
        if self._heartbeat is not None:
            self._deadline = min(self._end, time.monotonic() + self._heartbeat)

    def fail(self) -> None:
        """Raise the error of a handler that ran past the deadline."""
        if self._deadline < self._end:
            raise HeartbeatTimeoutError(f"the handler gave no heartbeat for {self._heartbeat:g} s")
        raise MethodTimeoutError(f"the handler ran past its timeout of {self._timeout:g} s")

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Fail inside the block when the deadline passes, at the latest at its end.

        The former works by SIGALRM, so only in a main thread, as in Celery's prefork pool. Elsewhere the block runs
        on, and the attempt is fenced instead: its lease is not renewed past the deadline.
        """
        if threading.current_thread() is threading.main_thread():
            with self._alarm():
                yield
        else:
            yield
        if self.left < 0:
            self.fail()

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            if self.left <= 0:
                _cancel_statement()
                self.fail()
            signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-6))  # heartbeats have come since it was set

        previous = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-6))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


def _cancel_statement() -> None:
    """Cancel what this thread waits for: the server would go on with it, and commit it, though nobody listens."""
    session = connections[conf().database].connection
    if session is None or session.closed or session.pgconn.transaction_status != TransactionStatus.ACTIVE:
        return
    with suppress(Exception):  # it needs a connection of its own, which may fail; the handler ends all the same
        session.cancel_safe(timeout=1)
