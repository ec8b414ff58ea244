"""Clients over HTTP: a driver whose threads send requests on kept-alive connections for a while."""

import http.client
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.driver import serve

PROFILES = 1000
TIMEOUT_SECONDS = 10
Answer = tuple[float, int]


def address(number: int) -> str:
    """One of the benchmark's customers."""
    return f"customer-{number:04}@example.com"


class Client:
    """One connection that saves or reads profiles."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        self._path = path

    def put(self, number: int) -> Answer:
        """Save one profile."""
        profile = {
            "emailAddress": address(number),
            "fullName": f"Customer {number}",
            "companyName": f"Company {random.randrange(100)}",
            "customerTier": "gold",
        }
        return self._timed("PUT", self._path, json.dumps(profile), {"Content-Type": "application/json"})

    def get(self, number: int) -> Answer:
        """Read one profile."""
        return self._timed("GET", f"{self._path}?emailAddress={address(number)}", None, {})

    def _timed(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        begun = time.perf_counter()
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status not in (200, 409):
            raise RuntimeError(f"{method} answered {response.status}: {text[:500]!r}")
        return time.perf_counter() - begun, response.status


def fill(port: int, path: str) -> None:
    """Save every profile once."""
    client = Client(port, path)
    for number in range(PROFILES):
        client.put(number)


def _client(port: int, path: str, method: str, seconds: float) -> list[Answer]:
    send = getattr(Client(port, path), method)
    answers = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        answers.append(send(random.randrange(PROFILES)))
    return answers


def load(port: int, path: str, method: str, seconds: float, threads: int) -> dict[str, object]:
    """Latencies of the answers, and how many requests met a lock (409), which do not count as done."""
    with ThreadPoolExecutor(threads) as pool:
        clients = [pool.submit(_client, port, path, method, seconds) for _ in range(threads)]
        answers = [answer for client in clients for answer in client.result()]
    return {
        "latencies": [seconds for seconds, status in answers if status == 200],
        "conflicts": sum(status == 409 for _, status in answers),
    }


if __name__ == "__main__":
    serve(fill=fill, load=load)
