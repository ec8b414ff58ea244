"""A Celery application that was made without the engine's parts."""

import pytest

from dexflows.tasks import warn_without_keeper
from dexflows.worker.identity import become, this_worker
from dexflows.worker.pools import ThreadingWorker


def test_a_worker_without_the_engine_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    warn_without_keeper()
    assert "dexflows.worker.install(app)" in caplog.text


def test_a_worker_with_the_engine_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    before = this_worker()
    become(ThreadingWorker("here"))
    try:
        warn_without_keeper()
    finally:
        become(before)
    assert not caplog.text
