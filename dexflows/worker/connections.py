"""Database connections of a worker: kept from task to task, and never shared across a fork.

Celery's own support of Django closes every connection before and after each task, so that each Step would begin with
a new session. Here a connection is kept as long as Django's settings allow, and checked as they say; only before a
Step not, since a claim notices a broken connection by itself and spares the round trip.
"""

from typing import Any

from celery import Celery, Task, signals
from celery.fixups.django import DjangoFixup
from django.db import close_old_connections, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from dexflows.conf import conf
from dexflows.tasks import run_step


def keep_connections(app: Celery) -> None:
    """Take over from Celery what happens to connections around a task; called once the worker is being made."""
    for fixup in app._fixups:  # type: ignore[attr-defined]
        if isinstance(fixup, DjangoFixup):
            signals.task_prerun.disconnect(fixup.worker_fixup.on_task_prerun)
            signals.task_postrun.disconnect(fixup.worker_fixup.on_task_postrun)
    signals.task_prerun.connect(_before_task, weak=False, dispatch_uid="dexflows.before_task")
    signals.task_postrun.connect(_after_task, weak=False, dispatch_uid="dexflows.after_task")


def forget_pools() -> None:
    """Leave inherited pools of connections to the parent: their threads and sessions are there, not in a child."""
    DatabaseWrapper._connection_pools = {}  # type: ignore[attr-defined]


def _before_task(sender: Task[Any, Any], **_: Any) -> None:
    if sender.name == run_step.name:
        connections[conf().database].health_check_done = True  # type: ignore[attr-defined]
    else:
        close_old_connections()


def _after_task(**_: Any) -> None:
    close_old_connections()
