"""Finding due work in the database and ringing for it: what keeps everything moving when doorbells are lost.

Any worker may sweep at any time. A row is taken for one sweeper by moving its `due_at` on, in one statement, so a
sweeper that dies holds nothing up for longer than that.
"""

from dataclasses import dataclass
from math import inf

import msgspec

from dexflows import sql
from dexflows.conf import conf
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.keys import StepKey
from dexflows.registry import registry

NEXT_DUE = "SELECT * FROM dexflows_next_due()"
DUE = "SELECT * FROM dexflows_sweep_due(%s)"
PARKED = "SELECT * FROM dexflows_sweep_parked(%s::jsonb, %s)"


@dataclass(frozen=True, slots=True)
class Due:
    """Seconds until Steps, leases and Flow timeouts are due: 0 or less for now, infinity where there are none."""

    steps: float
    leases: float
    deadlines: float

    @property
    def first(self) -> float:
        """Seconds until the first of them."""
        return min(self.steps, self.leases, self.deadlines)

    @property
    def is_now(self) -> bool:
        """Whether there is something to do."""
        return self.first <= 0


def next_due() -> Due:
    """When a sweep has something to do. One round trip."""
    return Due(*(inf if each is None else each for each in sql.call(conf().database, NEXT_DUE, ())[0]))


def ring_due(limit: int) -> int:
    """Ring for up to `limit` Steps that are due; returns for how many."""
    return _ring(sql.call(conf().database, DUE, (limit,)))


def ring_parked(limit: int) -> int:
    """Ring for up to `limit` Steps that were set aside and that this process knows; returns for how many."""
    known = msgspec.json.encode(sorted(registry.known_steps())).decode()
    return _ring(sql.call(conf().database, PARKED, (known, limit)))


def _ring(rows: list[tuple[object, ...]]) -> int:
    ring_after_commit([StepKey(*row) for row in rows])  # type: ignore[arg-type]
    return len(rows)
