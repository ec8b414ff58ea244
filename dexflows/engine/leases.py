"""Which attempts this process runs, told to whoever keeps their leases."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from dexflows.engine.keys import StepKey


class Worker(Protocol):
    """The worker process that executes Steps."""

    @property
    def name(self) -> str:
        """Shown to operators and stored with each attempt."""

    @property
    def draining(self) -> bool:
        """Whether the worker is about to stop and must not claim more work."""

    def holding(self, key: StepKey, token: UUID, timeout: float) -> AbstractContextManager[None]:
        """While open, the lease of this attempt is kept alive, until its method's timeout in seconds."""

    def due_in(self, seconds: float) -> None:
        """A hint that a Step is due so soon; whoever misses it finds the Step at the next regular look."""


@dataclass
class InlineWorker:
    """Runs Steps in the calling process without a keeper: an attempt has one lease's time."""

    name: str = "inline"
    draining: bool = False
    held: list[UUID] = field(default_factory=list)

    @contextmanager
    def holding(self, key: StepKey, token: UUID, timeout: float) -> Iterator[None]:
        self.held.append(token)
        try:
            yield
        finally:
            self.held.remove(token)

    def due_in(self, seconds: float) -> None:
        return None
