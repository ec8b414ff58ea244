"""The Celery side of the engine: one task, which only says which Step execution to look at."""

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from celery import current_app, shared_task, signals

from dexflows.engine import doorbell, executor
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.worker.identity import this_worker

logger = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""How long a process stops ringing after the broker failed it; sweeps find the work meanwhile."""


@shared_task(name="dexflows.run_step", ignore_result=True)
def run_step(run_id: str, flow_type: str, step_type: str, number: int, queue: str) -> None:
    """Look at one Step execution."""
    executor.run(StepKey(UUID(run_id), flow_type, step_type, number, queue), this_worker())


@signals.worker_ready.connect
def warn_without_keeper(**_: object) -> None:
    """Say so when a worker runs Steps but neither keeps their leases nor sweeps for due work."""
    if isinstance(this_worker(), InlineWorker):
        logger.critical(
            "this worker keeps no leases and sweeps for no due work: "
            "call dexflows.worker.install(app) where the Celery application is made"
        )


class CeleryDoorbell:
    """Rings by publishing `run_step`; after a failure it stays quiet for a while, so that callers are not held up."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    @property
    def failed(self) -> bool:
        """Whether the last ring failed."""
        return self._quiet_until > 0.0

    def ring(self, steps: Sequence[StepKey]) -> None:
        for step in steps:
            if time.monotonic() < self._quiet_until:
                return
            arguments = (str(step.run_id), step.flow_type, step.step_type, step.number, step.queue)
            try:
                run_step.apply_async(arguments, queue=step.queue, retry=False)
                self._quiet_until = 0.0
            except Exception as error:  # noqa: BLE001 - whatever transport it is, a ring must not fail a caller
                self._quiet_until = time.monotonic() + QUIET_SECONDS
                logger.warning("could not ring for due work, sweeps will find it: %s", error)

    def try_again(self) -> bool:
        """Ask the broker whether it is there again."""
        try:
            with current_app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, timeout=1)
        except Exception as error:  # noqa: BLE001 - see `ring`
            logger.warning("the broker cannot be reached: %s", error)
            return False
        self._quiet_until = 0.0
        return True


_celery_doorbell = CeleryDoorbell()
doorbell.install(_celery_doorbell)


def broker_is_reachable() -> bool:
    """Whether ringing is of use; costs nothing as long as rings arrive."""
    return not _celery_doorbell.failed or _celery_doorbell.try_again()
