"""The engine's settings: the dictionary `DEXFLOWS` of the Django settings, with defaults and checked."""

from dataclasses import dataclass, fields
from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

STREAMS_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://", "redis+socket://")
"""What the URL of the Redis that keeps Streams may begin with."""


@dataclass(frozen=True, kw_only=True)
class Conf:
    """All settings; a key of `DEXFLOWS` is the upper-case name of a field. Times are in seconds."""

    database: str = "default"
    """The Django database alias that holds the engine's tables."""
    default_queue: str = "dexflows"
    """The Celery queue of runs and Steps that name no other."""
    lease_seconds: float = 15.0
    """How long a Step may stay with a worker that gives no sign of life."""
    heartbeat_seconds: float = 4.0
    """How often a worker renews the leases of its living children; at most a third of the lease."""
    sweep_seconds: float = 1.0
    """The longest pause between two looks at what is due."""
    sweep_batch: int = 200
    """The most Steps that one sweep rings or rescues at a time."""
    run_on_steps: int = 50
    """How many Steps a worker runs in place before it goes back through the queue."""
    run_on_seconds: float = 1.0
    """How long a worker runs on in place before it goes back through the queue."""
    shutdown_grace_seconds: float = 8.0
    """How long running Steps may go on after SIGTERM before they are released."""
    max_value_bytes: int = 4 * 1024 * 1024
    """The largest value of an Attribute, an input or an output, as JSON."""
    streams_url: str | None = None
    """The Redis that keeps Streams; by default the one of `CELERY_BROKER_URL`."""
    streams_expire_seconds: float = 7 * 24 * 3600.0
    """How long a run's Stream is kept after its last message."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, (int, float)) and (
                isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0
            ):
                raise ImproperlyConfigured(f"DEXFLOWS[{field.name.upper()!r}] must be a number above 0, not {value!r}")
            if isinstance(field.default, str) and not (isinstance(value, str) and value):
                raise ImproperlyConfigured(f"DEXFLOWS[{field.name.upper()!r}] must be a text, not {value!r}")
        if self.streams_url is not None and not str(self.streams_url).startswith(STREAMS_SCHEMES):
            raise ImproperlyConfigured(f"DEXFLOWS['STREAMS_URL'] must begin with one of {', '.join(STREAMS_SCHEMES)}")
        if self.heartbeat_seconds > self.lease_seconds / 3:
            raise ImproperlyConfigured(
                f"DEXFLOWS['HEARTBEAT_SECONDS'] ({self.heartbeat_seconds}) must be at most a third of "
                f"DEXFLOWS['LEASE_SECONDS'] ({self.lease_seconds}), or live Steps would be taken for dead"
            )


@cache
def conf() -> Conf:
    """The settings in force. Raises ImproperlyConfigured for an unknown key or a value out of range."""
    given = getattr(settings, "DEXFLOWS", {})
    known = {field.name.upper() for field in fields(Conf)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(f"unknown keys in DEXFLOWS: {unknown}; known are {sorted(known)}")
    return Conf(**{key.lower(): value for key, value in given.items()})


def _forget(*, setting: str, **_: object) -> None:
    if setting == "DEXFLOWS":
        conf.cache_clear()


setting_changed.connect(_forget, dispatch_uid="dexflows.conf")
