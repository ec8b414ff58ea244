"""Which attempts the children of a worker run, in memory that they share with their parent.

The memory is mapped before the first fork. A child writes its slot around each attempt; the parent's lease keeper
reads it, and so learns what a child runs that was killed a moment ago. No lock is shared: one process writes a slot,
a byte says whether it counts, and whoever acts on what it read proves its right by the token in it.

A child has several slots, so that its successor in the pool, which has the same index, does not write over what the
parent has not read yet.
"""

import mmap
import struct
from dataclasses import dataclass
from uuid import UUID

CHILDREN = 1024
SLOTS_PER_CHILD = 4
_SLOTS = CHILDREN * SLOTS_PER_CHILD
_RECORD = struct.Struct("=16s16sIIH")
_MAX_STEP_TYPE = 1024
_SLOT_SIZE = _RECORD.size + _MAX_STEP_TYPE
_DEADLINE = struct.calcsize("d")
_DRAINING = _SLOTS * _DEADLINE
_ACTIVE = _DRAINING + 1
_RECORDS = _ACTIVE + _SLOTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """An attempt that a process says it runs; `deadline` is its method's, in seconds of `time.monotonic`."""

    run_id: UUID
    step_type: str
    number: int
    token: UUID
    pid: int
    deadline: float


class ClaimsTable:
    """One slot per running attempt, and whether the worker is about to stop."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _RECORDS + _SLOTS * _SLOT_SIZE)
        # They change while a slot counts: whole numbers in their places are read as they were before or are after.
        self._deadlines = memoryview(self._memory)[:_DRAINING].cast("d")

    @property
    def draining(self) -> bool:
        return self._memory[_DRAINING] == 1

    @draining.setter
    def draining(self, value: bool) -> None:
        self._memory[_DRAINING] = int(value)

    def free_slot(self, child: int) -> int:
        """A slot for a new child with this index in its pool. Raises ValueError when there are too many children."""
        if not 0 <= child < CHILDREN:
            raise ValueError(f"a worker can have at most {CHILDREN} children, not a child {child}")
        first = child * SLOTS_PER_CHILD
        free = (slot for slot in range(first, first + SLOTS_PER_CHILD) if not self._memory[_ACTIVE + slot])
        return next(free, first)

    def put(self, slot: int, held: Held) -> None:
        """Say that an attempt runs."""
        self.clear(slot)
        step_type = held.step_type.encode()[:_MAX_STEP_TYPE]
        start = _RECORDS + slot * _SLOT_SIZE
        fields = (held.run_id.bytes, held.token.bytes, held.number, held.pid, len(step_type))
        _RECORD.pack_into(self._memory, start, *fields)
        self._memory[start + _RECORD.size : start + _RECORD.size + len(step_type)] = step_type
        self.set_deadline(slot, held.deadline)
        self._memory[_ACTIVE + slot] = 1

    def set_deadline(self, slot: int, deadline: float) -> None:
        """Say until when the handler may run."""
        self._deadlines[slot] = deadline

    def get(self, slot: int) -> Held | None:
        """What a slot says; None when nothing runs."""
        if not self._memory[_ACTIVE + slot]:
            return None
        start = _RECORDS + slot * _SLOT_SIZE
        run_id, token, number, pid, length = _RECORD.unpack_from(self._memory, start)
        step_type = self._memory[start + _RECORD.size : start + _RECORD.size + length].decode(errors="replace")
        return Held(
            run_id=UUID(bytes=run_id),
            step_type=step_type,
            number=number,
            token=UUID(bytes=token),
            pid=pid,
            deadline=self._deadlines[slot],
        )

    def clear(self, slot: int) -> None:
        """Say that nothing runs any more."""
        self._memory[_ACTIVE + slot] = 0

    def active(self) -> dict[int, Held]:
        """Everything that runs, by slot."""
        found: dict[int, Held] = {}
        position = self._memory.find(b"\x01", _ACTIVE, _RECORDS)
        while position != -1:
            slot = position - _ACTIVE
            if (held := self.get(slot)) is not None:
                found[slot] = held
            position = self._memory.find(b"\x01", position + 1, _RECORDS)
        return found
