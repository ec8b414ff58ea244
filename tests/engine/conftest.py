"""A database with nothing of the engine in it, real commits, an empty registry and a doorbell that collects."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from dexflows import sql
from dexflows.engine import doorbell
from dexflows.registry import registry
from tests.engine.kit import CollectingDoorbell, Lab

TABLES = (
    *(
        f"dexflows_{table}"
        for table in (
            "run",
            "step_execution",
            "attribute",
            "lock_hold",
            "lock_wait",
            "event",
            "channel_message",
            "timer_skip",
            "sub_flow",
            "store_write",
        )
    ),
    "auth_group",
)


@pytest.fixture(scope="session")
def quick_commits(django_db_setup: None, django_db_blocker: Any) -> None:
    """Let commits not wait for the disk; nothing here crashes the server."""
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.close()


@pytest.fixture(autouse=True)
def transactional_db(quick_commits: None, django_db_blocker: Any) -> Iterator[None]:
    """Give real commits, but without the flush of pytest-django, which installs every SQL function anew."""
    with django_db_blocker.unblock():
        yield
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
            cursor.execute("".join(f"DELETE FROM {table}; " for table in TABLES))
            cursor.execute("SELECT prosrc FROM pg_proc WHERE proname = 'dexflows_now'")
            if cursor.fetchone()[0] not in sql.text("now"):
                cursor.execute(sql.text("now"))
        connection.close()


@pytest.fixture
def bell() -> Iterator[CollectingDoorbell]:
    """Hang up a doorbell that collects."""
    collecting = CollectingDoorbell()
    before = doorbell.install(collecting)
    yield collecting
    doorbell.install(before)


@pytest.fixture
def lab(bell: CollectingDoorbell) -> Iterator[Lab]:
    """Give a Flow to be defined by the test, in a registry of its own."""
    with registry.isolated():
        yield Lab(bell)
