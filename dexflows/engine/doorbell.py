"""The one way out of the engine: telling the fleet that a Step execution is worth a look.

A ring may be lost, repeated or late; that only costs time, since every worker sweeps for due work.
"""

from collections.abc import Sequence
from typing import Protocol

from django.db import transaction

from dexflows.conf import conf
from dexflows.engine.keys import StepKey


class Doorbell(Protocol):
    """Rings for Step executions. Must return soon and raise nothing, also when the broker is away."""

    def ring(self, steps: Sequence[StepKey]) -> None: ...


class SilentDoorbell:
    """Rings nowhere: due work is found by sweeps alone."""

    def ring(self, steps: Sequence[StepKey]) -> None:
        return None


_doorbell: Doorbell = SilentDoorbell()


def install(doorbell: Doorbell) -> Doorbell:
    """Use this doorbell in this process; returns the one before."""
    global _doorbell
    previous, _doorbell = _doorbell, doorbell
    return previous


def ring_after_commit(steps: Sequence[StepKey]) -> None:
    """Ring once the current transaction has committed: at once when there is none, never when it rolls back."""
    if steps:
        transaction.on_commit(lambda: _doorbell.ring(steps), using=conf().database, robust=True)
