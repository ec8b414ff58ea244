"""Rows that a Step writes in the transaction of its result, when its worker dies or stands still in the middle."""

import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from tests.stories.conftest import FLEET, Story, StoryWorker
from tests.stories.flows import Hold
from tests.stories.paying import PAYMENTS, payment_flow, sign_of

pytestmark = pytest.mark.worker


class Payment:
    """A payment that stands still in the middle of its first attempt."""

    def __init__(self, story: Story, gate: Path) -> None:
        self._story = story
        self.gate = gate
        self.flow_id = uuid.uuid4().hex
        hold = Hold(str(gate))
        self.run_id = story.client.start_flow(payment_flow, self.flow_id, hold)
        sign = sign_of(hold, 1)
        self.pid = int(story.until(lambda: sign.exists() and sign.read_text().endswith("\n") and sign.read_text()))

    def assert_made_once_by_the_second_attempt(self) -> None:
        """The Flow has completed, its Attribute and the application's table say the same, and nothing is locked."""
        assert self._story.result(self.flow_id) == 1
        assert self._story.client.get_attribute(self.flow_id, payment_flow.paid) == 1
        rows = self._story.rows("SELECT attempt FROM story_payment WHERE run_id = %s", self.run_id)
        assert rows == [(2,)]
        self._story.assert_at_rest()


def test_a_payment_is_made_once_whatever_happens_to_the_worker_that_makes_it(
    story: Story, start_worker: Callable[..., StoryWorker], tmp_path: Path
) -> None:
    with_payments = {"settings": FLEET, "modules": ("tests.stories.paying",)}
    with connection.cursor() as cursor:
        cursor.execute(PAYMENTS)
    workers = [start_worker(**with_payments), start_worker(**with_payments)]

    killed_child = Payment(story, tmp_path / "child")
    os.kill(killed_child.pid, signal.SIGKILL)
    killed_child.assert_made_once_by_the_second_attempt()

    sleeping = Payment(story, tmp_path / "sleeper")
    sleeper = next(worker for worker in workers if sleeping.pid in worker.pids())
    stopped = sleeper.pids()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    sleeping.assert_made_once_by_the_second_attempt()
    sleeping.gate.touch()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    story.until(lambda: "is not the current one any more" in sleeper.text())
    sleeping.assert_made_once_by_the_second_attempt()

    killed_group = Payment(story, tmp_path / "group")
    next(worker for worker in workers if killed_group.pid in worker.pids()).kill_group()
    killed_group.assert_made_once_by_the_second_attempt()
