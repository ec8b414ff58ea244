"""The example that users meet first, run from start to result on a real worker."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from dexflows import register
from dexflows.errors import FlowNotActiveOrNotFoundError
from dexflows.registry import registry
from tests.language.test_spec_example import ReviewFlow
from tests.stories.conftest import Story, StoryWorker

pytestmark = pytest.mark.worker


@pytest.fixture
def review_flow() -> Iterator[ReviewFlow]:
    """Give the registered Flow of the example."""
    with registry.isolated():
        yield register(ReviewFlow())


def test_the_review_flow_runs_as_it_is_written(
    review_flow: ReviewFlow, story: Story, start_worker: Callable[..., StoryWorker]
) -> None:
    flow_id = uuid.uuid4().hex
    story.client.start_flow(review_flow, flow_id, "chapter one")
    assert story.client.invoke_rpc(review_flow.set_status, flow_id, "queued") == "queued"
    assert story.client.get_attribute(flow_id, review_flow.status) == "queued"

    start_worker(modules=("tests.stories.reviewing",))
    result = story.client.wait_for_flow(flow_id, 30)
    assert (result.status, result.single_output(str)) == ("COMPLETED", "chapter one")
    assert story.steps(flow_id, "step_type, number, state") == [("ReviewStep", 1, "COMPLETED")]
    assert story.client.get_attribute(flow_id, review_flow.status) == "reviewed"
    assert story.client.get_attribute(flow_id, review_flow.progress, "payment") == "authorized"
    with pytest.raises(FlowNotActiveOrNotFoundError):
        story.client.invoke_rpc(review_flow.set_status, flow_id, "again")
    story.assert_at_rest()
