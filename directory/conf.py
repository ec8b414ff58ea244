"""The directory's settings: the dictionary ``DIRECTORY`` in Django's settings."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from directory.partitioning import PARTITION_COUNT


def partition_count() -> int:
    """``DIRECTORY["PARTITION_COUNT"]``: how many partitions the running code spreads the profiles over."""
    count = getattr(settings, "DIRECTORY", {}).get("PARTITION_COUNT", PARTITION_COUNT)
    if type(count) is not int or count < 1:
        raise ImproperlyConfigured(f'DIRECTORY["PARTITION_COUNT"] must be a positive integer, not {count!r}.')
    return count
