"""`make run` prints one banner when everything answers, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 150
STOP_SECONDS = 60


class DevServer:
    """`manage.py devserver` with a state folder and a port of its own."""

    def __init__(self, state_dir: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        own = {"PORT": str(self.port), "DEXFLOWS_PROFILE": "local", "DEXFLOWS_STATE_DIR": str(state_dir)}
        inherited = {key: value for key, value in os.environ.items() if key not in {"DATABASE_URL", "BROKER_URL"}}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "devserver"],
            cwd=PROJECT,
            env={**inherited, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for_banner(self) -> str:
        assert self.process.stdout is not None
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("Ready after"):
                timer.cancel()
                return "".join(self.lines)
        timer.cancel()
        raise AssertionError("no banner:\n" + "".join(self.lines))

    def family(self) -> list[psutil.Process]:
        return [self.psutil, *self.psutil.children(recursive=True)]

    def kill_web_and_wait_for_another(self) -> None:
        assert self.process.stdout is not None
        web = next(child for child in self.psutil.children() if "gunicorn" in " ".join(child.cmdline()))
        web.kill()
        for line in self.process.stdout:
            if "web ended" in line:
                return
        raise AssertionError("the supervisor ended")

    @property
    def psutil(self) -> psutil.Process:
        return psutil.Process(self.process.pid)

    def end(self, number: signal.Signals) -> None:
        """Send the signal, and read what is still printed until every process with the output has ended."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        timer = threading.Timer(STOP_SECONDS, self.process.kill)
        timer.start()
        self.lines += self.process.stdout.readlines()
        self.process.wait(STOP_SECONDS)
        timer.cancel()
        self.process.stdout.close()


@pytest.fixture
def server() -> Iterator[DevServer]:
    folder = Path(mkdtemp(prefix="dexflows-run-"))
    folder.chmod(0o755)
    server = DevServer(folder)
    yield server
    if server.process.poll() is None:
        server.end(signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)


def call(address: str, body: dict[str, str] | None = None) -> dict[str, str]:
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data=data, headers=headers, method="PUT" if body else "GET")
    with urllib.request.urlopen(request, timeout=20) as response:
        return dict(json.load(response))


def test_it_serves_the_directory_restarts_what_dies_and_leaves_no_process_after_ctrl_c(server: DevServer) -> None:
    banner = server.wait_for_banner()
    assert "/local/login/" in banner
    profiles = f"http://127.0.0.1:{server.port}/patterns/hash-partitioned-attribute-map/customer-profile"
    ada = {"emailAddress": "Ada@Example.com", "fullName": "Ada", "companyName": "Engines", "customerTier": "gold"}
    assert call(profiles, ada)["emailAddress"] == "ada@example.com"
    sample = re.findall(r"^([^,\n]+@[^,\n]+),", (PROJECT / "directory/data/sample_customers.csv").read_text(), re.M)
    assert call(f"{profiles}?{urllib.parse.urlencode({'emailAddress': sample[0]})}")["emailAddress"] == sample[0]
    server.kill_web_and_wait_for_another()
    family = server.family()
    server.end(signal.SIGINT)
    assert server.process.returncode == 0
    _gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_nothing_outlives_a_supervisor_that_is_killed(server: DevServer) -> None:
    server.wait_for_banner()
    family = server.family()
    server.end(signal.SIGKILL)
    _gone, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    assert alive == []
