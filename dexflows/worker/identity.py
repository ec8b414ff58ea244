"""The worker that this process is or belongs to."""

from dexflows.engine.leases import InlineWorker, Worker

_worker: Worker = InlineWorker()


def this_worker() -> Worker:
    """The worker of this process; a process outside Celery is its own, without a lease keeper."""
    return _worker


def become(worker: Worker) -> None:
    """Make this process (and children it forks) part of a worker."""
    global _worker
    _worker = worker
