"""What runs inside a Celery worker besides its tasks: lease keeping, sweeps, draining."""

from celery import Celery


def install(app: Celery) -> None:
    """Add the engine's parts to a Celery application's workers."""
