"""When a failed attempt is tried again."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

__all__ = ["RetryAfter", "RetryPolicy", "retry_after", "seconds"]

MAX_SECONDS = 100 * 366 * 86_400.0
"""The longest duration: a century, which timestamps and timers of every system can hold."""
_LARGEST_GROWTH = 700.0
"""Natural logarithm of the largest power that is computed; just below where floats end."""


def seconds(value: float | timedelta, name: str) -> float:
    """A duration as seconds, not negative and at most a century; `name` is what a refusal calls it."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"{name} must be a finite number of seconds, 0 or more and at most a century, not {value!r}")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how long a handler is tried again; durations are seconds or timedeltas.

    The wait before attempt n + 1 is drawn at random up to a cap that grows from `initial_interval` by
    `backoff_coefficient` to `maximum_interval`. `maximum_attempts` and `total_duration` of 0 mean no limit.
    """

    initial_interval: float | timedelta = 1.0
    backoff_coefficient: float = 2.0
    maximum_interval: float | timedelta = 100.0
    maximum_attempts: int = 0
    total_duration: float | timedelta = 4 * 3600.0

    def __post_init__(self) -> None:
        for name in ("initial_interval", "maximum_interval", "total_duration"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        coefficient = seconds(self.backoff_coefficient, "backoff_coefficient")
        if coefficient < 1:
            raise ValueError(f"backoff_coefficient must be 1 or more, not {coefficient!r}")
        object.__setattr__(self, "backoff_coefficient", coefficient)
        attempts = self.maximum_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0:
            raise ValueError(f"maximum_attempts must be a whole number, 0 or more, not {attempts!r}")

    def interval_cap(self, attempt: int) -> float:
        """The longest wait in seconds after attempt number `attempt`, which counts from 1."""
        initial = seconds(self.initial_interval, "initial_interval")
        maximum = seconds(self.maximum_interval, "maximum_interval")
        if initial >= maximum or initial == 0:
            return min(initial, maximum)
        if self.backoff_coefficient == 1:
            return initial
        growth = max(attempt - 1, 0) * math.log(self.backoff_coefficient)
        if growth >= min(math.log(maximum) - math.log(initial), _LARGEST_GROWTH):
            return maximum
        return min(maximum, initial * self.backoff_coefficient ** max(attempt - 1, 0))

    def next_interval(self, attempt: int, rng: random.Random | None = None) -> float:
        """The wait in seconds after attempt number `attempt`: full jitter within the cap."""
        draw = rng.random() if rng is not None else random.random()  # noqa: S311 - jitter needs no secrecy
        return draw * self.interval_cap(attempt)

    def is_exhausted(self, attempt: int, elapsed_seconds: float) -> bool:
        """Whether attempt number `attempt`, ended `elapsed_seconds` after the first one began, was the last."""
        if self.maximum_attempts and attempt >= self.maximum_attempts:
            return True
        total = seconds(self.total_duration, "total_duration")
        return total > 0 and elapsed_seconds >= total

    def to_json(self) -> dict[str, Any]:
        """The policy as plain JSON values."""
        return {
            "initial_interval": self.initial_interval,
            "backoff_coefficient": self.backoff_coefficient,
            "maximum_interval": self.maximum_interval,
            "maximum_attempts": self.maximum_attempts,
            "total_duration": self.total_duration,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> RetryPolicy:
        """The policy that `to_json` wrote."""
        return cls(**raw)


class RetryAfter(Exception):  # noqa: N818 - a signal to the engine, not an error of dexflows
    """Raised by a handler to fail this attempt and set the next wait only."""

    def __init__(self, seconds_to_wait: float, cause: BaseException | None = None) -> None:
        super().__init__(f"retry after {seconds_to_wait} s" + (f": {cause}" if cause else ""))
        self.seconds = seconds_to_wait
        self.cause = cause
        self.__cause__ = cause


def retry_after(interval: float | timedelta, cause: BaseException | None = None) -> RetryAfter:
    """Make the exception that sets the next wait only: `raise retry_after(5, error)`."""
    return RetryAfter(seconds(interval, "retry_after"), cause)
