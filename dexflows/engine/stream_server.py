"""The Redis that keeps Streams, asked with little patience.

Nothing that matters is in it. So a question gets a fraction of a second, and a server that failed one is left alone
for a while, after which one caller at a time tries again. Writing and reading each have their own view of it: a server
that is full takes no writes, but is still worth reading.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from dexflows.conf import STREAMS_SCHEMES, conf
from dexflows.errors import UnavailableError

logger = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE_SECONDS = 0.3
"""How long connecting, and each answer, may take."""
QUIET_SECONDS = 5.0
"""How long a server that failed is left alone."""
NOT_CONFIGURED = "Streams have no Redis: set DEXFLOWS['STREAMS_URL']"


class Purpose(StrEnum):
    """What a server is asked for."""

    WRITE = "written"
    READ = "read"


class StreamServer:
    """One server, for one purpose, as this process sees it."""

    def __init__(self, url: str | None, purpose: Purpose) -> None:
        self._url = url
        self._purpose = purpose
        self._lock = threading.Lock()
        self._away = False
        self._quiet_until = 0.0

    def ask(self, question: Callable[["redis.Redis"], T]) -> T:
        """The answer, or UnavailableError when there is none; the first of an outage is logged."""
        if not self._is_worth_asking():
            raise UnavailableError(self._refusal)
        try:
            answer = question(self._client)
        except Exception as error:
            self._went_away(error)
            raise UnavailableError(self._refusal) from error
        if self._away:
            self._came_back()
        return answer

    @cached_property
    def _client(self) -> "redis.Redis":
        if self._url is None:
            raise UnavailableError(NOT_CONFIGURED)
        return client_of(self._url)

    @property
    def _refusal(self) -> str:
        return f"Streams cannot be {self._purpose} now" if self._url else NOT_CONFIGURED

    def _is_worth_asking(self) -> bool:
        if not self._away:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._quiet_until:
                return False
            self._quiet_until = now + QUIET_SECONDS
            return True

    def _went_away(self, error: Exception) -> None:
        with self._lock:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            if not self._away:
                self._away = True
                logger.warning("Streams cannot be %s now: %s", self._purpose, error)

    def _came_back(self) -> None:
        with self._lock:
            if self._away:
                self._away = False
                logger.info("Streams can be %s again", self._purpose)


@lru_cache(maxsize=8)
def _server(url: str | None, purpose: Purpose) -> StreamServer:
    return StreamServer(url, purpose)


def server(purpose: Purpose) -> StreamServer:
    """The server of the settings in force."""
    return _server(address()[0], purpose)


def address() -> tuple[str | None, str]:
    """The server's URL, None when there is none, and what all its keys begin with.

    It is `DEXFLOWS["STREAMS_URL"]`, else Celery's broker if that is a Redis, with the broker's key prefix.
    """
    if own := conf().streams_url:
        return own, ""
    broker = getattr(settings, "CELERY_BROKER_URL", None)
    if isinstance(broker, str) and broker.startswith(STREAMS_SCHEMES) and ";" not in broker:
        options = getattr(settings, "CELERY_BROKER_TRANSPORT_OPTIONS", None) or {}
        return broker, str(options.get("global_keyprefix", ""))
    return None, ""


def client_of(url: str) -> "redis.Redis":
    """A client that connects when it is first used. Raises ValueError or TypeError for a URL that cannot be used."""
    options = _options(url)
    if "path" not in options:
        options["socket_connect_timeout"] = PATIENCE_SECONDS
    options |= {
        "socket_timeout": PATIENCE_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": True,
        "encoding_errors": "replace",
    }
    pool = redis.ConnectionPool(**options)
    pool.connection_class(**pool.connection_kwargs)  # refuses options that it does not know; connects to nothing
    return redis.Redis(connection_pool=pool)


_REDIS_NAMES = {"redis+socket": "unix", "valkey": "redis", "valkeys": "rediss"}


def _options(url: str) -> dict[str, Any]:
    """What redis-py makes of a URL, in which Celery's own spellings are allowed."""
    scheme, _, rest = url.partition("://")
    options: dict[str, Any] = parse_url(f"{_REDIS_NAMES.get(scheme, scheme)}://{rest}")  # type: ignore[no-untyped-call]
    if "virtual_host" in options:
        options["db"] = int(options.pop("virtual_host"))
    if "ssl_cert_reqs" in options:
        options["ssl_cert_reqs"] = options["ssl_cert_reqs"].lower().removeprefix("cert_")
    return options
