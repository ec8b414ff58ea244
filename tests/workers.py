"""Real Celery workers as child processes of a test."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from django.conf import settings
from django.db import connection

PROJECT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """One `celery worker` on the database and the broker keys of this test run."""

    def __init__(
        self,
        *,
        queue: str = "dexflows",
        concurrency: int = 2,
        pool: str = "prefork",
        env: Mapping[str, str] | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        self.queue = queue
        self.concurrency = concurrency
        self.pool = pool
        self.env = dict(env or {})
        self.modules = modules
        self.output: list[str] = []
        self.is_ready = False
        self._ready_or_ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The pid of the worker's parent process."""
        assert self._process is not None, "the worker was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the worker in a process group of its own; it ends with the test run, however that ends."""
        self._process = subprocess.Popen(
            self._command(),
            cwd=PROJECT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def wait_ready(self, seconds: float = 30) -> None:
        """Wait until the worker takes messages."""
        self._ready_or_ended.wait(seconds)
        assert self.is_ready, "the worker did not get ready:\n" + self.text()

    @property
    def is_running(self) -> bool:
        """Whether the parent lives."""
        return self._process is not None and self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """Wait until the worker has ended by itself, and give its exit status."""
        assert self._process is not None, "the worker was not started"
        return self._process.wait(seconds)

    def text(self) -> str:
        """Give what the worker has printed so far."""
        return "".join(self.output)

    def pids(self) -> list[int]:
        """Give the pids of the parent and then of its children; a server that it had to start is none of them."""
        try:
            children = psutil.Process(self.pid).children(recursive=True)
            return [self.pid, *(child.pid for child in children if os.getpgid(child.pid) == self.pid)]
        except (psutil.NoSuchProcess, ProcessLookupError):
            return []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent."""
        os.kill(self.pid, number)

    def stop(self, seconds: float = 20) -> int:
        """End the worker as a process manager does, and give its exit status."""
        assert self._process is not None, "the worker was not started"
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill_group()
            raise

    def kill_group(self) -> None:
        """Kill the parent and all its children at one blow."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(10)

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "celery", "-A", "config", "worker", "--loglevel=INFO"]
        command += ["-Q", self.queue, "-c", str(self.concurrency), "-P", self.pool]
        command += ["-n", f"{uuid.uuid4().hex[:8]}@%h", "--without-gossip", "--without-mingle"]
        return [*command, f"--include={','.join(self.modules)}"] if self.modules else command

    def environment(self) -> dict[str, str]:
        """The environment of the worker, for other processes that are to work beside it."""
        prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("global_keyprefix", "")
        own = {"DATABASE_NAME": connection.settings_dict["NAME"], "BROKER_KEY_PREFIX": prefix}
        return {**os.environ, "PYTHONUNBUFFERED": "1", **own, **self.env}

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            if line.rstrip().endswith(" ready."):
                self.is_ready = True
                self._ready_or_ended.set()
        self._ready_or_ended.set()


def end_with_parent() -> None:
    """Make the calling process end with the one that started it, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
