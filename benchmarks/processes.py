"""Processes of one measurement: each in a session of its own, ended by its pid, never left behind."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READY_SECONDS = 30.0
STOP_SECONDS = 10.0


class Process:
    """A context manager around one child; its output goes to `log`."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: Path, *, piped: bool = False) -> None:
        self.log = log
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, **env},
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask, wait, then end the whole session of this child."""
        if self._popen.stdin:
            self._popen.stdin.close()
        if self._popen.poll() is None:
            self._popen.terminate()
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait(STOP_SECONDS)

    def failure(self, what: str) -> RuntimeError:
        """An error that shows the end of the child's log."""
        tail = self.log.read_text(errors="replace")[-2000:]
        return RuntimeError(f"{what} (exit code {self._popen.poll()}); end of its log:\n{tail}")


class Driver(Process):
    """A child that runs `benchmarks.driver.serve`."""

    def __init__(self, module: str, env: Mapping[str, str], log: Path) -> None:
        super().__init__(["-m", module], env, log, piped=True)
        self._receive(READY_SECONDS)

    def send(self, command: str, **arguments: Any) -> None:
        """Begin a command; its answer is fetched with `receive`, so that several drivers work at once."""
        assert self._popen.stdin
        self._popen.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._popen.stdin.flush()

    def receive(self, timeout: float) -> Any:
        """The answer to the command sent last."""
        return self._receive(timeout)

    def ask(self, command: str, *, timeout: float, **arguments: Any) -> Any:
        """Send and receive."""
        self.send(command, **arguments)
        return self._receive(timeout)

    def _receive(self, timeout: float) -> Any:
        assert self._popen.stdout
        if not select.select([self._popen.stdout], [], [], timeout)[0]:
            raise self.failure(f"no answer within {timeout:g} s")
        line = self._popen.stdout.readline()
        if not line:
            raise self.failure("the driver ended")
        return json.loads(line)
