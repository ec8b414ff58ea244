"""Runs the processes of `make run` side by side: restarts one that ends, and ends all of them with itself."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

PROJECT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 10.0
RESTARTS_ALLOWED = 5
PR_SET_PDEATHSIG = 1


class Stopped(BaseException):
    """The person at the keyboard, or a process manager, wants everything to end. Not an error: nothing catches it."""

    # Where a signal comes while Python runs a hook, as it does around each fork, what its handler raises is dropped.
    is_wanted = False


class Supervisor:
    """A few named child processes."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._commands: dict[str, list[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._restarts = 0

    def start(self, name: str, command: list[str]) -> None:
        """Start a child in a process group of its own, so that Ctrl-C reaches it through the supervisor alone."""
        self._commands[name] = command
        self._processes[name] = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_end_with_parent
        )

    def watch(self) -> None:
        """Start children again that have ended, until `Stopped` is raised or they keep ending."""
        while True:
            self.check()
            time.sleep(0.2)

    def check(self) -> None:
        """Start children again that have ended; raises `Stopped` if a signal asked for that and went unheard."""
        if Stopped.is_wanted:
            raise Stopped
        for name, process in list(self._processes.items()):
            status = process.poll()
            if status is None:
                continue
            self._restarts += 1
            if self._restarts > RESTARTS_ALLOWED:
                raise RuntimeError(f"{name} keeps ending (status {status}); its messages are above.")
            self._report(f"{name} ended with status {status}; starting it again.")
            _kill_group(process)
            self.start(name, self._commands[name])

    def stop(self) -> None:
        """End all children: politely, and after a while for good."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except (subprocess.TimeoutExpired, Stopped):
                deadline = 0.0  # A second Ctrl-C: no more patience.
            finally:
                _kill_group(process)
                process.wait()


def raise_stopped_on_signals() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Stopped`, in the main thread."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        Stopped.is_wanted = True
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_with_parent() -> None:
    # Where the supervisor itself is killed, Linux ends its children.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
