"""What a worker's processes share: the table of claims and the alarm."""

import os
import time
from uuid import uuid4

import pytest

from dexflows.worker.alarm import Alarm
from dexflows.worker.claims_table import CHILDREN, ClaimsTable, Held


def held(step_type: str = "Review", pid: int = 0) -> Held:
    return Held(run_id=uuid4(), step_type=step_type, number=7, token=uuid4(), pid=pid or os.getpid(), deadline=12.5)


def in_child(work: object) -> None:
    """Run a function in a forked process."""
    pid = os.fork()
    if pid == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_parent_reads_what_a_child_wrote_before_it_died() -> None:
    table = ClaimsTable()
    slot, written = table.free_slot(3), held("Prüfung" * 36)
    in_child(lambda: table.put(slot, written))
    assert table.active() == {slot: written}
    table.clear(slot)
    assert table.active() == {}


def test_the_successor_of_a_dead_child_does_not_write_over_its_claim() -> None:
    table = ClaimsTable()
    first, second = held("First"), held("Second")
    in_child(lambda: table.put(table.free_slot(0), first))
    in_child(lambda: table.put(table.free_slot(0), second))
    in_child(lambda: table.put(table.free_slot(CHILDREN - 1), first))
    assert sorted(each.step_type for each in table.active().values()) == ["First", "First", "Second"]


def test_there_is_no_slot_for_a_child_too_many() -> None:
    with pytest.raises(ValueError, match="at most"):
        ClaimsTable().free_slot(CHILDREN)


def test_all_processes_see_that_the_worker_is_draining() -> None:
    table = ClaimsTable()
    assert not table.draining
    in_child(lambda: setattr(table, "draining", True))
    assert table.draining


def test_an_alarm_set_by_a_child_wakes_the_parent_when_it_is_due() -> None:
    alarm = Alarm()
    started = time.monotonic()
    in_child(lambda: (alarm.set(30), alarm.set(0.2)))
    alarm.wait(20)
    assert 0.2 <= time.monotonic() - started < 10


def test_an_alarm_that_nobody_sets_ends_by_itself_and_a_full_one_blocks_nobody() -> None:
    alarm = Alarm()
    alarm.wait(0.01)
    for _ in range(20_000):
        alarm.set(60)
    alarm.set()
    alarm.wait(0.01)
