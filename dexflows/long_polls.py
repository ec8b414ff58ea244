"""Waiting from outside until a run closes, a Step execution ends or an Attribute has a value.

A caller looks once by itself and leaves the rest to the Watcher; when that takes longer than a moment, it gives its
connection back meanwhile. A caller inside a transaction goes on looking by itself, since only its own connection sees
what it has not committed.

What waits is written once, as a generator that yields where it has to wait (`Looks`). `blocking` and `awaiting` drive
it: the one stops the calling thread, the other only its task.
"""

import asyncio
import concurrent.futures
import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections

from dexflows import selectors, sql
from dexflows.arguments import options_of
from dexflows.attribute import MAX_NAME_LENGTH, physical_name
from dexflows.conf import conf
from dexflows.engine.rpc import restarting
from dexflows.errors import (
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    InvalidRequestError,
    LongPollTimeoutError,
)
from dexflows.flow_result import FlowResult
from dexflows.models import Run
from dexflows.retry import seconds
from dexflows.states import StepState
from dexflows.targets import (
    AttributeMatch,
    StepExecutionId,
    WaitForAttributeOptions,
    WaitForStepCompletionOptions,
)
from dexflows.watching import Awaited, Happened, close_of, end_of, look, match_of, watcher

P = ParamSpec("P")
R = TypeVar("R")
Looks: TypeAlias = Generator[tuple[Future[Any], float | None], None, R]
"""Yields what may end a pause early, and the longest pause in seconds (None: no limit); returns the result."""

FIRST_PAUSE, LAST_PAUSE = 0.002, 0.25
"""Seconds between two looks of a caller inside a transaction; each pause is twice the one before."""
SHORT_WAIT = 0.05
"""Seconds for which a caller keeps its connection, which it needs again when it wakes."""
MAX_NUMBER = 2**31 - 1

SESSION_IN_USE = """
SELECT pg_my_temp_schema() <> 0
    OR EXISTS (SELECT FROM pg_cursors WHERE is_holdable)
    OR EXISTS (SELECT FROM pg_listening_channels())
    OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""


class TimeLimit:
    """How long a caller waits: seconds or a timedelta; None waits without end and 0 looks once."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        try:
            self._seconds = math.inf if timeout is None else seconds(timeout, "timeout")
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
        self._end = time.monotonic() + self._seconds

    def left(self, what: str) -> float:
        """The seconds that are left. Raises LongPollTimeoutError, saying what is still so, when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise LongPollTimeoutError(f"{what} after {self._seconds:g} s")
        return left


def flow_result(flow_id: str, run_id: UUID | None, limit: TimeLimit) -> "Looks[FlowResult]":
    """The result of the run, or of the latest one and of what retries it."""
    run, result = restarting(partial(_run_and_result, flow_id, run_id))
    while True:
        if not result.is_terminal:
            yield from _until_happened(close_of(run.run_id), limit, f"Flow {flow_id!r} is still running")
            found = run.run_id
        elif run_id is None and run.retried_by is not None:
            found = run.retried_by
        else:
            return result
        run, result = restarting(partial(_run_and_result, flow_id, found))


def _run_and_result(flow_id: str, run_id: UUID | None) -> tuple[Run, FlowResult]:
    run = selectors.find_run(flow_id, run_id)
    return run, selectors.result_of(run)


def step_completion(run: Run, step: StepExecutionId, limit: TimeLimit) -> "Looks[None]":
    """Wait until the Step execution is COMPLETED."""
    still = f"{step} of Flow {run.flow_id!r} is not completed"
    happened = yield from _until_happened(end_of(run.run_id, step), limit, still)
    _check_exists(run, happened)
    if happened.state is not StepState.COMPLETED:
        stands = f"is {happened.state}" if happened.state else "was never created"
        raise FlowNotActiveOrNotFoundError(
            f"{step} of Flow {run.flow_id!r} {stands}; its run {run.run_id} is {happened.status}"
        )


def attribute_match(run: Run, selected: selectors.Selector, match: AttributeMatch, limit: TimeLimit) -> "Looks[Any]":
    """Wait until the Attribute, which is of the run's Flow, has the value; return it."""
    attribute, name, instance = selectors.key_of(selected)
    called, codec, value = physical_name(name, instance), attribute.codec, match.value
    encoded = None if value is None else codec.encode(value, key=called, limit=conf().max_value_bytes)
    awaited = match_of(run.run_id, name, instance, encoded, attribute.default_json)
    still = f"{called} of Flow {run.flow_id!r} does not match"
    happened = yield from _until_happened(awaited, limit, still)
    _check_exists(run, happened)
    if not happened.matches:
        raise FlowNotActiveOrNotFoundError(f"{still}; its run {run.run_id} is {happened.status}")
    return None if encoded is None else codec.decode(encoded)


def _check_exists(run: Run, happened: Happened) -> None:
    if happened.status is None:
        raise FlowNotFoundError(f"run {run.run_id} of Flow {run.flow_id!r} was deleted")


def check_step(step: object) -> None:
    """Refuse what can name no Step execution."""
    if not isinstance(step, StepExecutionId):
        raise InvalidRequestError(f"a Step execution is named by StepExecutionId(step_type, number), not {step!r}")
    name = step.step_type
    if len(name) > MAX_NAME_LENGTH or not name.isprintable() or step.number > MAX_NUMBER:
        raise InvalidRequestError(f"there can be no Step execution {str(step)[:80]!r}")


def limit_of(options: object, kind: type[WaitForAttributeOptions] | type[WaitForStepCompletionOptions]) -> TimeLimit:
    """The time limit of a call's options, None meaning the default ones."""
    return TimeLimit(options_of(kind, options).request_timeout)


def match_arguments(
    given: Sequence[Any], options: WaitForAttributeOptions | None
) -> tuple[str | None, AttributeMatch, TimeLimit]:
    """Instance, match and time limit out of `([instance,] match[, options])`."""
    if given and isinstance(given[-1], WaitForAttributeOptions) and options is None:
        given, options = given[:-1], given[-1]
    if len(given) not in (1, 2) or not isinstance(given[-1], AttributeMatch):
        raise InvalidRequestError("to wait for are (attribute, match) or (attribute_map, instance, match)")
    return given[0] if len(given) == 2 else None, given[-1], limit_of(options, WaitForAttributeOptions)


def _until_happened(awaited: Awaited, limit: TimeLimit, still: str) -> "Looks[Happened]":
    """Wait for one thing; `still` says how it stands when the time is up, as in "Flow 'f' is still running"."""
    pause = FIRST_PAUSE
    while True:
        found = restarting(lambda: look(awaited)).get(awaited)
        if found is not None:
            return found
        left = limit.left(still)
        if not _in_transaction():
            break
        yield Future(), min(pause, left)
        pause = min(pause * 2, LAST_PAUSE)
    with watcher.watch(awaited) as happened:
        yield happened, min(SHORT_WAIT, left)
        while not happened.done():
            left = limit.left(still)
            give_connection_back()
            yield happened, None if left == math.inf else left
        return happened.result()


def _in_transaction() -> bool:
    """Whether this thread's connection, which is open, may have written what only it sees."""
    return not connections[conf().database].autocommit


def give_connection_back() -> None:
    """Close this thread's connection, or return it to its pool, unless its session holds what would end with it."""
    connection = connections[conf().database]
    if connection.connection is None or _in_transaction():  # tasks share a thread, and so its connection
        return
    with suppress(DatabaseError, InterfaceError):
        if sql.call(conf().database, SESSION_IN_USE, ())[0][0]:
            return
    connection.close()


def _next_pause(looks: "Looks[R]") -> tuple[tuple[Future[Any], float | None] | None, R | None]:
    """Look once: what to wait for before the next look, or the result."""
    try:
        return next(looks), None
    except StopIteration as end:
        return None, end.value


def blocking(method: Callable[P, "Looks[R]"]) -> Callable[P, R]:
    """Stop the calling thread while a method waits; `inspect.unwrap` gives the generator function for `awaitable`."""

    @wraps(method)
    def wait(*args: P.args, **kwargs: P.kwargs) -> R:
        looks = method(*args, **kwargs)
        try:
            while True:
                pause, result = _next_pause(looks)
                if pause is None:
                    return cast("R", result)
                concurrent.futures.wait((pause[0],), pause[1])
        finally:
            looks.close()

    return wait


class _Abandonable:
    """A wait of which a task may be canceled while its generator runs in another thread."""

    def __init__(self, looks: "Looks[Any]") -> None:
        self._looks = looks
        self._abandoned = False

    def next_pause(self) -> tuple[tuple[Future[Any], float | None] | None, Any]:
        try:
            return _next_pause(self._looks)
        finally:
            if self._abandoned:
                self.abandon()

    def abandon(self) -> None:
        self._abandoned = True
        with suppress(ValueError):  # it runs in its thread now, which will see the mark
            self._looks.close()


async def awaiting(looks: "Looks[R]") -> R:
    """Wait without a thread: the looks are made in Django's thread for synchronous code."""
    steps = _Abandonable(looks)
    try:
        while True:
            pause, result = await sync_to_async(steps.next_pause)()
            if pause is None:
                return cast("R", result)
            await asyncio.wait((asyncio.wrap_future(pause[0]),), timeout=pause[1])
    finally:
        steps.abandon()
