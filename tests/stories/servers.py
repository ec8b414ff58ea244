"""Servers that a test may break: a broker of its own, and a way to the database that can stand still."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select

import redis

from config.embedded.binaries import find_valkey
from tests.workers import end_with_parent


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Broker:
    """A Valkey or Redis without memory, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        log = (self._folder / "broker.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [find_valkey(), *options],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            )
        pause = threading.Event()
        for _ in range(500):
            with suppress(redis.ConnectionError), self.client() as client:
                client.ping()
                return
            pause.wait(0.02)
        raise AssertionError("the broker does not answer")

    @contextmanager
    def broken(self, fault: str) -> Iterator[None]:
        """Within the block it is `stopped`, `paused` (runs no command) or `silent`; afterwards it runs."""
        if fault == "silent":
            with socket.create_server(("127.0.0.1", self.port)):
                yield
        elif fault == "paused":
            self.start()
            with self.client() as client:
                client.client_pause(120_000)
            yield
            self.stop()
        else:
            yield
        self.start()

    def client(self) -> "redis.Redis":
        """A client of it."""
        return redis.Redis(port=self.port, socket_timeout=2)

    def stop(self) -> None:
        """Kill it; nothing is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


class SlowLine:
    """A TCP port that leads to another socket, until it is told to pass nothing on any more."""

    def __init__(self, target: str, port: int) -> None:
        self._target = (target, port)
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stand_still(self) -> None:
        """Pass nothing on, but keep every connection open."""
        self._flows.clear()

    def close(self) -> None:
        """End all connections."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                if self._flows.is_set():
                    far = self._connect()
                    self._sockets.append(far)
                    threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{host}/.s.PGSQL.{port}")
        return far

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while True:
                for one in select([near, far], [], [])[0]:
                    data = one.recv(65536)
                    self._flows.wait()
                    if not data:
                        near.shutdown(socket.SHUT_RDWR)
                        far.shutdown(socket.SHUT_RDWR)
                        return
                    (far if one is near else near).sendall(data)
