"""Flow state in Django's admin: everything can be looked at, nothing can be changed.

No page counts or scans a table: lists go from key to key along an index, a row is read by its primary key, and each
page makes the same number of queries however much there is.
"""

from dexflows.admin import attributes, events, locks, messages, runs, steps

__all__ = ["attributes", "events", "locks", "messages", "runs", "steps"]
