"""The example that users meet first registers as it is written."""

from __future__ import annotations

from dexflows import (
    Attribute,
    AttributeIndex,
    AttributeMap,
    Context,
    Flow,
    IndexType,
    PersistenceSchema,
    RPCResult,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Wait,
    graceful_complete,
    register,
    rpc,
)
from dexflows.registry import registry


class ReviewStep(Step[str]):
    def __init__(self, flow: ReviewFlow) -> None:
        self.flow = flow

    def wait_for(self, context: Context, input: str) -> Wait:
        self.flow.status.set(context, "reviewing")
        return Wait.skip_immediately()

    def execute(self, context: Context, input: str) -> StepDecision:
        self.flow.status.set(context, "reviewed")
        self.flow.progress.set(context, "payment", "authorized")
        return graceful_complete(input)

    def get_step_options(self) -> StepOptions:
        return StepOptions(execute_lock_attributes=(self.flow.status.lock(), self.flow.progress.lock("payment")))


class ReviewFlow(Flow[str]):
    status = Attribute("review-status", str, index=AttributeIndex(IndexType.KEYWORD, "keyword1"))
    progress = AttributeMap("review-progress", str)

    def __init__(self) -> None:
        self.review = ReviewStep(self)

    def get_steps(self) -> StepList[str]:
        return StepList.start_step(self.review)

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.status, self.progress)

    @rpc(lock_attributes=(status.lock(), progress.lock("payment")))
    def set_status(self, context: Context, input: str) -> RPCResult[str]:
        self.status.set(context, input)
        return RPCResult(input)


def test_the_review_flow_registers_with_its_step_rpc_locks_and_index() -> None:
    with registry.isolated():
        review_flow = register(ReviewFlow())
        definition = registry.definition_of(review_flow)
        assert definition is registry.definition_of(ReviewFlow) is registry.get("ReviewFlow")
        assert (
            definition.start_step is definition.resolve_step(ReviewStep) is definition.resolve_step(review_flow.review)
        )
        assert definition.start_step.has_wait_for
        assert [lock.key for lock in definition.start_step.options.execute_lock_attributes] == [
            "review-status",
            "review-progress/payment",
        ]
        assert registry.rpc_of(review_flow.set_status) == (definition, definition.rpcs["set_status"])
        assert registry.known_steps() == {("ReviewFlow", "ReviewStep")}
        assert registry.known_index_keys() == {"keyword1": IndexType.KEYWORD}
    assert registry.get("ReviewFlow") is None
