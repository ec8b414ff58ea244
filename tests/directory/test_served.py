"""64 callers at once, over sockets, at the web server that `make run` starts."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import random

import pytest
from django.db import connection

from config.management.commands.devserver import web_command
from directory.models import CustomerProfile
from directory.partitioning import email_partition
from tests.workers import PROJECT

CALLERS = 64
CONFLICT = 409
TRIES = 200
SECONDS = 60
PROFILE_PATH = "/patterns/hash-partitioned-attribute-map/customer-profile"

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("directory")]


@dataclass(frozen=True)
class Answer:
    """The status of one answer, its problem code and how long it took."""

    status: int
    code: str | None
    seconds: float


class Caller:
    """A caller with a connection that it keeps."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self.answers: list[Answer] = []

    def put(self, address: str) -> Answer:
        """Save a profile."""
        profile = {"emailAddress": address, "fullName": f"Name of {address}", "companyName": "B", "customerTier": "C"}
        began = time.monotonic()
        self._connection.request("PUT", PROFILE_PATH, json.dumps(profile), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        body = json.loads(response.read())
        self.answers.append(Answer(response.status, body.get("code"), time.monotonic() - began))
        return self.answers[-1]

    def put_until_saved(self, address: str) -> None:
        """Save a profile, again after each conflict."""
        pause = threading.Event()
        for attempt in range(TRIES):
            if self.put(address).status != CONFLICT:
                return
            pause.wait(random() * min(1.0, 0.02 * 2**attempt))


def call_at_once(port: int, addresses: list[str]) -> list[Answer]:
    """Save all profiles, each by a caller of its own; all begin together. Gives every answer."""
    barrier = threading.Barrier(len(addresses))
    callers = [Caller(port) for _ in addresses]

    def call(caller: Caller, address: str) -> None:
        barrier.wait(SECONDS)
        caller.put_until_saved(address)

    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(call, callers, addresses))
    return [answer for caller in callers for answer in caller.answers]


@pytest.fixture
def port(transactional_db: None) -> Iterator[int]:
    """Give the port of a web server on the test database that answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    own = {"DATABASE_NAME": connection.settings_dict["NAME"], "DEXFLOWS_PROFILE": "local"}
    server = subprocess.Popen(web_command(free), cwd=PROJECT, env={**os.environ, **own}, stdin=subprocess.DEVNULL)
    try:
        wait_until_it_answers(server, free)
        yield free
    finally:
        server.terminate()
        server.wait(SECONDS)


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    pause = threading.Event()
    for _ in range(SECONDS * 20):
        assert server.poll() is None, "the web server ended"
        with suppress(OSError):
            probe = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
            probe.request("GET", "/readyz")
            if probe.getresponse().status == 200:
                return
        pause.wait(0.05)
    raise AssertionError("the web server did not answer")


def in_one_partition(size: int) -> list[str]:
    addresses = (f"caller{n}@example.com" for n in count())
    own = (address for address in addresses if email_partition(address).instance == "partition-000")
    return [next(own) for _ in range(size)]


def in_partitions_of_their_own(size: int) -> list[str]:
    one_of_each: dict[str, str] = {}
    for n in count():
        if len(one_of_each) == size:
            break
        one_of_each.setdefault(email_partition(address := f"apart{n}@example.com").instance, address)
    return list(one_of_each.values())


def saved() -> dict[str, str]:
    """The names of all stored customers, by address."""
    return dict(CustomerProfile.objects.values_list("email", "full_name"))


def test_64_callers_at_once_are_all_saved_and_conflict_in_one_partition_only(port: int) -> None:
    apart, together = in_partitions_of_their_own(CALLERS), in_one_partition(CALLERS)
    unhindered = call_at_once(port, apart)
    assert [answer.status for answer in unhindered] == [200] * CALLERS
    answers = call_at_once(port, together)
    refused = [answer for answer in answers if answer.status != 200]
    assert len(answers) - len(refused) == CALLERS
    assert {(answer.status, answer.code) for answer in refused} == {(CONFLICT, "rpc_lock_conflict")}
    # On a machine that is too busy for a second, a refusal takes no longer than saving does with nothing in its way.
    patience = max(1.0, 2 * max(answer.seconds for answer in unhindered))
    assert max(answer.seconds for answer in refused) < patience
    assert saved() == {address: f"Name of {address}" for address in {*apart, *together}}
