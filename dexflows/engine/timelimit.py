"""Interrupting a handler that runs past its timeout."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class MethodTimeoutError(BaseException):
    """A handler ran past its method timeout. No subclass of Exception, so that `except Exception` cannot swallow it."""


class HeartbeatTimeoutError(BaseException):
    """A handler gave no heartbeat in time. No subclass of Exception either."""


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Raise MethodTimeoutError inside the block after so many seconds.

    Works by SIGALRM, so only in a main thread, as in Celery's prefork pool. Elsewhere the block runs on, and the
    attempt is fenced instead: its lease is not renewed past the timeout.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise MethodTimeoutError(f"the handler ran past its timeout of {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
