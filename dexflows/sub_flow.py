"""SubFlows: other Flows that a Step starts and waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dexflows.errors import InvalidRequestError
from dexflows.options import StartFlowOptions
from dexflows.states import IdReusePolicy, SubFlowReusePolicy

if TYPE_CHECKING:
    from dexflows.context import Context
    from dexflows.flow import Flow
    from dexflows.flow_result import FlowResult

__all__ = ["SubFlow", "SubFlowOptions"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SubFlowOptions:
    """How a SubFlow starts. `start` may set anything but the ID reuse policy and what belongs to a caller's request."""

    reuse_policy: SubFlowReusePolicy = SubFlowReusePolicy.RESTART_IF_PREVIOUS_EXITS_ABNORMALLY
    start: StartFlowOptions = field(default_factory=StartFlowOptions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reuse_policy", SubFlowReusePolicy(self.reuse_policy))
        start = self.start
        if start.id_reuse_policy is not IdReusePolicy.DEFAULT or start.request_id or start.ignore_already_started:
            raise ValueError("a SubFlow's start has no id_reuse_policy, request_id or ignore_already_started")


@dataclass(frozen=True, kw_only=True)
class SubFlow:
    """Waits until another Flow has closed, however it ends; made by `SubFlow.run`.

    The run is an ordinary one with the Flow ID `SubFlow:{parent}-{step execution}-{index}`, started in the commit of
    `wait_for`. It goes on when its parent's wait is over, or its parent.
    """

    flow: Flow[Any] | type[Flow[Any]]
    input: object
    options: SubFlowOptions
    condition_id: str | None = None

    @classmethod
    def run(
        cls,
        flow: Flow[T] | type[Flow[T]],
        input: T | None = None,
        options: SubFlowOptions | None = None,
        *,
        condition_id: str | None = None,
    ) -> SubFlow:
        """Run a registered Flow and wait for it."""
        return cls(flow=flow, input=input, options=options or SubFlowOptions(), condition_id=condition_id)

    @staticmethod
    def get_condition_results(context: Context, index: int | None = None) -> FlowResult:
        """In `execute`: how the SubFlow of the condition with this index stood when the wait ended.

        The index counts all conditions of the wait from 0; None means its one SubFlow. A SubFlow that had not closed
        by then has the status RUNNING. Raises InvalidRequestError when there is no such SubFlow.
        """
        results = context.waited.sub_flows
        if index is None and len(results) == 1:
            return next(iter(results.values()))
        if index is None or index not in results:
            raise InvalidRequestError(f"this Step waited for SubFlows at the indices {sorted(results)}, not {index}")
        return results[index]
