"""The engine's statements: one PostgreSQL function per file, installed after each `migrate`."""

import hashlib
from importlib.resources import files
from typing import Any

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

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
    """Create every function anew on one database, in one transaction: callers see all old ones or all new ones.

    Does nothing when this release's functions are there, as a mark on the first of them says.
    """
    release = hashlib.sha256("".join(text(name) for name in names()).encode()).hexdigest()
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('dexflows.sql', 0))")
        cursor.execute("SELECT obj_description(to_regproc('dexflows_now'), 'pg_proc')")
        if cursor.fetchone() == (release,):
            return
        for name in names():
            if name not in CREATION_ORDER:
                _drop(cursor, f"dexflows_{name}")
            cursor.execute(text(name))
        cursor.execute("COMMENT ON FUNCTION dexflows_now() IS %s", [release])


def _drop(cursor: CursorWrapper, function: str) -> None:
    """A changed signature would leave the old function beside the new one, and calls ambiguous."""
    cursor.execute(
        "SELECT oid::regprocedure::text FROM pg_proc "
        "WHERE proname = %s AND pronamespace = current_schema()::regnamespace",
        [function],
    )
    for (signature,) in cursor.fetchall():
        cursor.execute(f"DROP FUNCTION {signature}")


def call(using: str, statement: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Run one statement in one round trip and return its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, arguments)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def call_all(using: str, statements: list[tuple[str, tuple[Any, ...]]]) -> list[list[tuple[Any, ...]]]:
    """Run several statements in one round trip and return the rows of each; what follows a failed one is not run."""
    script = ";".join(statement for statement, _ in statements)
    with connections[using].cursor() as cursor:
        cursor.execute(script, [argument for _, arguments in statements for argument in arguments])
        results = [cursor.fetchall() if cursor.description else []]
        while cursor.nextset():
            results.append(cursor.fetchall() if cursor.description else [])
    return results
