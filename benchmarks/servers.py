"""The PostgreSQL and the broker that everything measured shares, and a scratch database for each.

They are the project's own: embedded, or those of DATABASE_URL and BROKER_URL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import psycopg
import redis
from psycopg import sql

SETTINGS = ("fsync", "synchronous_commit", "shared_buffers", "max_connections", "wal_sync_method")


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Where the two servers answer."""

    host: str
    port: int
    user: str
    password: str
    database: str
    broker_url: str

    @property
    def redis_url(self) -> str:
        """The broker as a Redis client spells it."""
        if self.broker_url.startswith("redis+socket://"):
            return "unix://" + self.broker_url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
        return self.broker_url

    def database_url(self, name: str) -> str:
        """A database of this server as a URL; the host is a parameter because it may be a socket's directory."""
        login = quote(self.user) + (":" + quote(self.password, safe="") if self.password else "")
        return f"postgresql://{login}@/{name}?" + urlencode({"host": self.host, "port": self.port})

    @contextmanager
    def scratch(self, name: str) -> Iterator[None]:
        """An empty database for the time of the run."""
        self._drop(name)
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield
        finally:
            self._drop(name)

    def describe(self) -> dict[str, object]:
        """Versions and the settings that matter to a write."""
        with psycopg.connect(self.database_url(self.database)) as connection:
            settings = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in SETTINGS}  # type: ignore[index]
            version = connection.info.parameter_status("server_version")
        broker = redis.Redis.from_url(self.redis_url, socket_timeout=5)
        info = broker.info("server")
        return {
            "postgresql": version,
            "postgresql_settings": settings,
            "broker": f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}",
        }

    def _drop(self, name: str) -> None:
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.database_url(self.database), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


def find_servers() -> Servers:
    """Start or find the project's servers. Django must be set up."""
    from django.conf import settings
    from django.db import connection

    from config.celery import app

    connection.ensure_connection()
    info = connection.connection.info
    with app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=3)
    return Servers(
        host=info.host,
        port=info.port,
        user=info.user,
        password=info.password,
        database=info.dbname,
        broker_url=settings.BROKER_URL,
    )
