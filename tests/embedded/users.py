"""Processes that use embedded servers of a state folder of their own, and what is known of those servers."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import psutil

from config.embedded import POSTGRES
from config.embedded.leases import Running, has_keeper, read_ready
from config.embedded.places import home

PROJECT = Path(__file__).resolve().parent.parent.parent
SECONDS = 40

USER = """
import sys
from pathlib import Path
import psycopg
from config.embedded import ensure
running = ensure(sys.argv[1], Path(sys.argv[2]))
print(running.pid, flush=True)
if sys.argv[1] == "postgres":
    with psycopg.connect(host=running.socket_dir, user="dexflows", dbname="dexflows", autocommit=True) as connection:
        for statement in sys.argv[3:]:
            cursor = connection.execute(statement)
            if cursor.description:
                print(cursor.fetchone()[0], flush=True)
print("done", flush=True)
sys.stdin.read()
"""


class User:
    """A process that uses an embedded server until it is told to end."""

    def __init__(
        self, state_dir: Path, *statements: str, service: str = POSTGRES, env: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, service, str(state_dir), *statements],
            cwd=PROJECT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self) -> list[str]:
        """Wait until the process has done its statements, and give what they gave, after the server's pid."""
        assert self.process.stdout is not None
        lines: list[str] = []
        timer = threading.Timer(SECONDS, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            if line.strip() == "done":
                timer.cancel()
                return lines
            lines.append(line.strip())
        timer.cancel()
        raise AssertionError(f"the user ended early: {self.error()}")

    def error(self) -> str:
        """Give what the process has written to its error output; it must have ended, or be about to."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self) -> None:
        """Let the process end by itself."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(SECONDS)
        self._close()

    def end_by(self, number: signal.Signals) -> None:
        """End the process by a signal."""
        self.process.send_signal(number)
        self.process.wait(SECONDS)
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def running(state_dir: Path, service: str = POSTGRES) -> Running:
    """Give the server that runs in a state folder."""
    found = read_ready(home(state_dir, service))
    assert found is not None, "no server is running"
    return found


def keeper_pid(server: Running) -> int:
    """Give the pid of a server's keeper."""
    return int(psutil.Process(server.pid).ppid())


def wait_until_stopped(state_dir: Path, server: Running, service: str = POSTGRES) -> None:
    """Wait until a server and its keeper are gone."""
    processes = [psutil.Process(pid) for pid in _existing(server.pid)]
    parents = [parent for process in processes if (parent := process.parent()) is not None]
    keepers = [parent for parent in parents if "config.embedded.keeper" in parent.cmdline()]
    _gone, alive = psutil.wait_procs([*processes, *keepers], timeout=SECONDS)
    assert not alive, f"still there: {alive}"
    assert not has_keeper(home(state_dir, service))


def _existing(pid: int) -> list[int]:
    return [pid] if psutil.pid_exists(pid) else []
