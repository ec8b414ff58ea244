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

    def holding(self, key: StepKey, token: UUID) -> AbstractContextManager[None]:
        """While open, the lease of this attempt is kept alive."""


@dataclass
class InlineWorker:
    """Runs Steps in the calling process without a keeper: an attempt has one lease's time."""

    name: str = "inline"
    draining: bool = False
    held: list[UUID] = field(default_factory=list)

    @contextmanager
    def holding(self, key: StepKey, token: UUID) -> Iterator[None]:
        self.held.append(token)
        try:
            yield
        finally:
            self.held.remove(token)
