"""Guards the durable partition schema: running code with another count or algorithm would not find the profiles.

The schema is recorded when the directory is first started. It is compared by ``manage.py check --database default``,
by ``start_customer_directory``, when a worker starts, and at a process's first request to the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection

from directory.conf import partition_count
from directory.models import DirectorySchema
from directory.partitioning import ALGORITHM

logger = logging.getLogger(__name__)


class PartitionSchemaMismatchError(ImproperlyConfigured):
    """The directory was started with another partition count or algorithm than the running code uses."""


_verified: set[tuple[int, str]] = set()


def record() -> None:
    """Record the running code's schema if none is recorded; raise ``PartitionSchemaMismatchError`` if another is."""
    recorded, _ = DirectorySchema.objects.get_or_create(
        pk=DirectorySchema.ONLY, defaults={"partition_count": partition_count(), "algorithm": ALGORITHM}
    )
    _compare(recorded)


def verify() -> bool:
    """Whether a schema is recorded; raises ``PartitionSchemaMismatchError`` if it is not the running code's."""
    recorded = DirectorySchema.objects.filter(pk=DirectorySchema.ONLY).first()
    if recorded is None:
        return False
    _compare(recorded)
    return True


def ensure_unchanged() -> None:
    """``verify``, until a recorded schema was found to agree: afterwards it costs no query."""
    key = (partition_count(), ALGORITHM)
    if key not in _verified and verify():
        _verified.add(key)


def forget() -> None:
    """Compare again at the next use: for tests, and after a database was restored under a running process."""
    _verified.clear()


def _compare(recorded: DirectorySchema) -> None:
    count = partition_count()
    if (recorded.partition_count, recorded.algorithm) != (count, ALGORITHM):
        raise PartitionSchemaMismatchError(
            f"The customer directory was created with {recorded.partition_count} partitions by "
            f"{recorded.algorithm!r}, but the running code uses {count} by {ALGORITHM!r}. Existing profiles would not "
            f'be found. Set DIRECTORY["PARTITION_COUNT"] = {recorded.partition_count} and run the code that made it.'
        )


def check_partition_schema(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The system check: an error when the database holds a directory made with another schema."""
    if not databases or connection.alias not in databases:
        return []
    if DirectorySchema._meta.db_table not in connection.introspection.table_names():
        return []
    try:
        verify()
    except PartitionSchemaMismatchError as mismatch:
        return [Error(str(mismatch), id="directory.E001")]
    return []


def verify_at_worker_start(**_: Any) -> None:
    """Refuse to start a worker on a mismatch; a database that is away is reported by whoever needs it next."""
    try:
        verify()
    except PartitionSchemaMismatchError as mismatch:
        # Celery logs and swallows any Exception of a signal's receiver: only this ends the worker.
        raise SystemExit(str(mismatch)) from mismatch
    except DatabaseError:
        logger.warning("The directory's partition schema was not checked: the database does not answer.")
    finally:
        # The worker forks after this: no child may inherit the connection.
        connection.close()
