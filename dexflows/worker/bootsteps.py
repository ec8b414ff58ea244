"""Where the engine's threads meet the life of a Celery worker."""

from typing import Any, Protocol

from celery import Celery, bootsteps, signals
from celery.concurrency.prefork import TaskPool as ForkingPool
from django.db import connections

from dexflows.conf import conf
from dexflows.worker.connections import forget_pools, keep_connections
from dexflows.worker.draining import Drain
from dexflows.worker.identity import become, this_worker
from dexflows.worker.keeper import LeaseKeeper
from dexflows.worker.pools import ForkingWorker, ThreadingWorker
from dexflows.worker.pump import Pump


class CeleryWorker(Protocol):
    """What this module uses of Celery's `WorkController`."""

    app: Celery
    hostname: str
    pool_cls: type
    use_eventloop: bool


class Engine(bootsteps.StartStopStep):
    """Makes the process a worker before its pool forks, and keeps leases and pump going until it ends.

    The leases must be kept while the pool waits for its last tasks, which is after this step would be stopped: so the
    threads end with the worker, not with the step.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: CeleryWorker, **options: Any) -> None:
        super().__init__(parent, **options)
        conf()  # a worker with settings that cannot work must not start
        connections.close_all()
        keep_connections(parent.app)
        forks = issubclass(parent.pool_cls, ForkingPool)
        self._worker: ForkingWorker | ThreadingWorker = (
            ForkingWorker(parent.hostname, forks_in_main_thread=parent.use_eventloop)
            if forks
            else ThreadingWorker(parent.hostname)
        )
        become(self._worker)
        self._keeper = LeaseKeeper(self._worker)
        self._pump = Pump(self._worker.alarm)
        self._drain = Drain(self._worker, self._keeper)

    def start(self, parent: CeleryWorker) -> None:
        """Start the threads; the pool has forked its children by now."""
        self._keeper.start()
        self._pump.start()
        signals.worker_shutting_down.connect(self._shut_down)
        signals.worker_shutdown.connect(self._end)

    def stop(self, parent: CeleryWorker) -> None:
        """Nothing: see above."""

    def _shut_down(self, how: str = "Warm", exitcode: int = 0, **_: Any) -> None:
        self._pump.stop()
        grace = conf().shutdown_grace_seconds if how == "Warm" else 0.0
        self._drain.begin(grace, exitcode if isinstance(exitcode, int) else 0)

    def _end(self, **_: Any) -> None:
        self._drain.finish()
        self._keeper.stop()
        self._pump.stop()


def begin_child(**_: Any) -> None:
    """Called in each process of the pool, so that its connections are its own and its Steps have a keeper."""
    forget_pools()
    worker = this_worker()
    if isinstance(worker, ForkingWorker):
        worker.begin_child()
