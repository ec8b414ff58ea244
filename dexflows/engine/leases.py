"""Which attempts this process runs, told to whoever keeps their leases."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from dexflows.engine.keys import StepKey


class Holding:
    """An attempt whose lease is kept, and when its process may be ended because its handler runs too long."""

    def __init__(self, set_deadline: Callable[[float], None] = lambda _deadline: None) -> None:
        self._set_deadline = set_deadline

    def extend(self, seconds: float) -> None:
        """The handler has so many seconds from now."""
        self._set_deadline(time.monotonic() + seconds)

    def done(self) -> None:
        """The handler has ended; settling its result takes as long as it takes."""
        self._set_deadline(math.inf)


UNWATCHED = Holding()


class Worker(Protocol):
    """The worker process that executes Steps."""

    @property
    def name(self) -> str:
        """Shown to operators and stored with each attempt."""

    @property
    def draining(self) -> bool:
        """Whether the worker is about to stop and must not claim more work."""

    def holding(self, key: StepKey, token: UUID, timeout: float) -> AbstractContextManager[Holding]:
        """While open, the lease of this attempt is kept alive, and its handler has `timeout` seconds."""

    def due_in(self, seconds: float) -> None:
        """A hint that a Step is due so soon; whoever misses it finds the Step at the next regular look."""


@dataclass
class InlineWorker:
    """Runs Steps in the calling process without a keeper: an attempt has one lease's time."""

    name: str = "inline"
    draining: bool = False
    held: list[UUID] = field(default_factory=list)

    @contextmanager
    def holding(self, key: StepKey, token: UUID, timeout: float) -> Iterator[Holding]:
        self.held.append(token)
        try:
            yield UNWATCHED
        finally:
            self.held.remove(token)

    def due_in(self, seconds: float) -> None:
        return None
