"""The closed lists of words that rows, options and answers use."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "FlowTimeoutPolicy",
    "IdReusePolicy",
    "RunStatus",
    "StepDurability",
    "StepMethod",
    "StepState",
    "StopType",
    "SubFlowReusePolicy",
    "WaitForFailure",
]


class RunStatus(StrEnum):
    """The state of a run; every state but RUNNING is final."""

    RUNNING = "RUNNING"
    """The run takes Steps, RPCs and updates."""
    COMPLETED = "COMPLETED"
    """All branches ended, or a Step forced completion."""
    FAILED = "FAILED"
    """A Step failed for good, forced failure, or the run was stopped as failed."""
    CANCELED = "CANCELED"
    """The run was canceled from outside."""
    TERMINATED = "TERMINATED"
    """The run was ended from outside without regard to its work."""

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended."""
        return self is not RunStatus.RUNNING


class StepState(StrEnum):
    """The state of a Step execution."""

    QUEUED = "QUEUED"
    """Ready: the next free worker takes it."""
    RUNNING = "RUNNING"
    """A worker holds it under a lease."""
    WAITING = "WAITING"
    """`wait_for` returned conditions that are not met yet."""
    WAITING_FOR_LOCK = "WAITING_FOR_LOCK"
    """It stands in the queue for its locks and occupies no worker."""
    BACKOFF = "BACKOFF"
    """An attempt failed; the next one starts when it is due."""
    COMPLETED = "COMPLETED"
    """`execute` returned a decision and it was committed."""
    FAILED = "FAILED"
    """The last attempt failed."""
    CANCELED = "CANCELED"
    """It was canceled, or the run closed before it ended."""

    @property
    def is_open(self) -> bool:
        """Whether the Step execution can still run."""
        return self not in (StepState.COMPLETED, StepState.FAILED, StepState.CANCELED)


class StepMethod(StrEnum):
    """The two handlers of a Step."""

    WAIT_FOR = "wait_for"
    """Runs first, where the Step has it, and says what to wait for."""
    EXECUTE = "execute"
    """Does the work and decides what comes next."""


class StepDurability(StrEnum):
    """How a Step's commit meets a crash of the database."""

    SYNC = "SYNC"
    """The commit is on disk before the Step goes on."""
    ASYNC = "ASYNC"
    """A crash of the database may repeat the last moments, never corrupt them."""


class IdReusePolicy(StrEnum):
    """When a Flow ID that was used before may start again."""

    DEFAULT = "DEFAULT"
    """The same as DISALLOW."""
    DISALLOW = "DISALLOW"
    """Never while an earlier run is kept."""
    ALLOW_IF_PREVIOUS_FAILED = "ALLOW_IF_PREVIOUS_FAILED"
    """Only if the latest run failed, was canceled or was terminated."""
    ALLOW_IF_NOT_RUNNING = "ALLOW_IF_NOT_RUNNING"
    """Only if the latest run has closed."""
    ALLOW_TERMINATE_IF_RUNNING = "ALLOW_TERMINATE_IF_RUNNING"
    """Always; a running run is terminated first."""


class StopType(StrEnum):
    """How `stop_flow` closes a run."""

    CANCEL = "CANCEL"
    """The run becomes CANCELED."""
    TERMINATE = "TERMINATE"
    """The run becomes TERMINATED."""
    FAIL = "FAIL"
    """The run becomes FAILED."""


class FlowTimeoutPolicy(StrEnum):
    """What happens to a run at its timeout."""

    FAIL = "FAIL"
    """The run becomes FAILED with the error type FLOW_TIMEOUT, and the Flow's retry policy applies."""
    CANCEL = "CANCEL"
    """The run becomes CANCELED and is not retried."""
    HANDLER = "HANDLER"
    """The Flow's `handle_timeout` runs once and decides."""


class WaitForFailure(StrEnum):
    """What the last failure of a `wait_for` handler leads to."""

    FAIL_FLOW = "FAIL_FLOW"
    """The run fails."""
    PROCEED = "PROCEED"
    """`execute` runs without having waited; `context.wait_for_method_failed()` tells it."""


class SubFlowReusePolicy(StrEnum):
    """What happens when a SubFlow's Flow ID has a run already, from an earlier run of its parent."""

    ATTACH = "ATTACH"
    """That run is waited for, or its result taken."""
    RESTART_IF_PREVIOUS_EXITS_ABNORMALLY = "RESTART_IF_PREVIOUS_EXITS_ABNORMALLY"
    """The same, but a run that failed, was canceled or was terminated is followed by a new one."""
    ALWAYS_RESTART = "ALWAYS_RESTART"
    """A new run starts; one that is running is terminated first."""
