"""Row three: the directory over HTTP beside a hand-written DRF view, in one gunicorn, under the same clients."""

import http.client
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.processes import Driver, Process
from benchmarks.report import US, Budget, Row

CORES = os.cpu_count() or 1
SERVER_THREADS = 4
CLIENT_PROCESSES = 2
CLIENT_THREADS = 4
SECONDS = 4.0
TIMEOUT = 30.0
FILL_TIMEOUT = 120.0

VIEW = "DRF view"
PATHS = {US: "/patterns/hash-partitioned-attribute-map/customer-profile", VIEW: "/peer/customer-profile"}
START = "/patterns/hash-partitioned-attribute-map/start"
SETTINGS = {
    "server": f"gunicorn gthread, {CORES} processes of {SERVER_THREADS} threads",
    "clients": f"{CLIENT_PROCESSES} processes of {CLIENT_THREADS} threads, kept-alive connections on loopback",
    "seconds": SECONDS,
}


def measure(rounds: int, env: Mapping[str, str], logs: Path) -> list[Row]:
    """PUT and GET of both contenders, `rounds` times, in turn."""
    rows = {method: _row(method) for method in ("put", "get")}
    with _running(env, logs) as (port, clients):
        for number in range(rounds):
            for method, row in rows.items():
                for name in list(PATHS)[:: 1 if number % 2 else -1]:
                    row.add(name, _requests_per_second(clients, port, PATHS[name], method))
                    print(f"round {number + 1}: {name}: {method} {row.rounds[name][-1]:,.0f} requests/s", flush=True)
    return list(rows.values())


def _row(method: str) -> Row:
    return Row(
        name=f"directory {method.upper()} over HTTP",
        unit="requests/s",
        more_is_better=True,
        budgets=(Budget(peer=VIEW, ratio=1),),
    )


@contextmanager
def _running(env: Mapping[str, str], logs: Path) -> Iterator[tuple[int, list[Driver]]]:
    port = _free_port()
    server = ("-m", "gunicorn", "config.wsgi", "--worker-class=gthread", f"--workers={CORES}")
    command = (*server, f"--threads={SERVER_THREADS}", f"--bind=127.0.0.1:{port}", "--keep-alive=30")
    with ExitStack() as stack:
        stack.enter_context(Process(command, env, logs / "gunicorn.log"))
        _start_directory(port)
        clients = [
            stack.enter_context(Driver("benchmarks.load", {}, logs / "clients.log")) for _ in range(CLIENT_PROCESSES)
        ]
        for path in PATHS.values():
            clients[0].ask("fill", port=port, path=path, timeout=FILL_TIMEOUT)
        yield port, clients


def _requests_per_second(clients: Sequence[Driver], port: int, path: str, method: str) -> float:
    for client in clients:
        client.send("load", port=port, path=path, method=method, seconds=SECONDS, threads=CLIENT_THREADS)
    answers = [client.receive(SECONDS + TIMEOUT) for client in clients]
    latencies = [latency for answer in answers for latency in answer["latencies"]]
    conflicts = sum(answer["conflicts"] for answer in answers)
    print(f"  p50 {median(latencies) * 1000:.2f} ms, {conflicts} lock conflicts", flush=True)
    return len(latencies) / SECONDS


def _start_directory(port: int) -> None:
    """Wait for the server, then start the directory."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
            connection.request("POST", START)
            response = connection.getresponse()
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
            continue
        if response.status != 200:
            raise RuntimeError(f"starting the directory answered {response.status}: {response.read()[:500]!r}")
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
