"""The web server of `make run` as a child process of a test."""

import os
import socket
import subprocess
import threading
import urllib.request
from contextlib import suppress

from django.db import connection

from config.management.commands.devserver import HOST, web_command
from tests.workers import PROJECT, end_with_parent

START_SECONDS = 60
STOP_SECONDS = 20


class WebServer:
    """Serves the database of this process on a free port of this machine; it ends with the test run."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        own = {"DATABASE_NAME": connection.settings_dict["NAME"], "DEXFLOWS_PROFILE": "local"}
        self._process = subprocess.Popen(
            web_command(self.port),
            cwd=PROJECT,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )
        pause = threading.Event()
        for _ in range(START_SECONDS * 20):
            assert self._process.poll() is None, "the web server ended"
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=START_SECONDS):
                return
            pause.wait(0.05)
        raise AssertionError("the web server did not answer")

    def stop(self) -> None:
        """End it and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS)
