"""What a `wait_for` handler returns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Wait"]


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a Step execution waits for before `execute` runs; made by its named constructors."""

    @classmethod
    def skip_immediately(cls) -> Wait:
        """Wait for nothing: `execute` runs next."""
        return cls()
