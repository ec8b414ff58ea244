"""The engine's statements: one PostgreSQL function per file, installed after each `migrate`."""

from importlib.resources import files
from typing import Any

from django.db import connections, transaction

CREATION_ORDER = ("now", "uuid7", "advisory", "gate")
"""What other functions name in a way that PostgreSQL checks at creation."""


def names() -> list[str]:
    """All functions, in an order in which they can be created."""
    found = sorted(f.name.removesuffix(".sql") for f in files(__name__).iterdir() if f.name.endswith(".sql"))
    return [*CREATION_ORDER, *(name for name in found if name not in CREATION_ORDER)]


def text(name: str) -> str:
    """The statement of one file."""
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def install(using: str) -> None:
    """Create every function anew on one database, in one transaction: callers see all old ones or all new ones."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('dexflows.sql', 0))")
        for name in names():
            if name not in CREATION_ORDER:
                # A changed signature would leave the old function beside the new one, and calls ambiguous.
                cursor.execute(
                    "SELECT oid::regprocedure::text FROM pg_proc "
                    "WHERE proname = %s AND pronamespace = current_schema()::regnamespace",
                    [f"dexflows_{name}"],
                )
                for (signature,) in cursor.fetchall():
                    cursor.execute(f"DROP FUNCTION {signature}")
            cursor.execute(text(name))


def call(using: str, statement: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Run one statement in one round trip and return its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, arguments)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
