"""The child's end of a pipe: one JSON command a line in, one JSON answer a line out.

A driver starts a peer's work from its own process, so that what measures costs what is measured nothing.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

Command = Callable[..., Any]


def _take_stdout() -> TextIO:
    """Keep the pipe for answers: whatever a library prints goes to the log instead."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


_answers = _take_stdout()


def serve(**commands: Command) -> None:
    """Answer commands until the parent closes the pipe."""
    _answers.write(json.dumps("ready") + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        answer = commands[request.pop("command")](**request)
        _answers.write(json.dumps(answer) + "\n")


def timed(work: Callable[[], object], count: int) -> list[float]:
    """Seconds that each of `count` calls took, one after the other."""
    durations = []
    for _ in range(count):
        begun = time.perf_counter()
        work()
        durations.append(time.perf_counter() - begun)
    return durations
