"""Waking the pump of a worker from its children, in time for work that is due sooner than the pump would look."""

import contextlib
import os
import select
import struct
import time

_DUE = struct.Struct("=d")


class Alarm:
    """A pipe made before the fork: whoever sets the alarm writes when it is to ring, in `time.monotonic` seconds."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def set(self, seconds: float = 0.0) -> None:
        """Ring so many seconds from now."""
        with contextlib.suppress(BlockingIOError):  # a full pipe: the pump is behind and will look anyway
            os.write(self._writer, _DUE.pack(time.monotonic() + seconds))

    def wait(self, seconds: float) -> None:
        """Sleep until the alarm rings, at most so many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._reader], [], [], left)[0]:
                until = min(until, self._earliest())

    def _earliest(self) -> float:
        data = os.read(self._reader, 512 * _DUE.size)
        due: list[float] = [fields[0] for fields in _DUE.iter_unpack(data)]
        return min(due)
