"""What runs inside a Celery worker besides its tasks: lease keeping, sweeps, draining."""

from celery import Celery, signals


def install(app: Celery) -> None:
    """Add the engine's parts to a Celery application's workers."""
    from dexflows.worker.bootsteps import Engine, begin_child

    app.steps["worker"].add(Engine)
    signals.worker_process_init.connect(begin_child, weak=False, dispatch_uid="dexflows.begin_child")
