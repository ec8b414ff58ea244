"""The stories about several things at once keep their promises, in one process and on a real worker."""

import json
import threading
from collections.abc import Callable

import pytest
from django.http import JsonResponse
from django.test import RequestFactory

from dexflows import Client, StepExecutionId, TimerId, WaitForStepCompletionOptions
from dexflows.testing import LiveFlows, VirtualFlows
from tests.engine.kit import rows
from tests.stories.conftest import Story, StoryWorker
from tests.stories.examples import checkout, parcel_batch, video_render
from tests.stories.examples.checkout import checkout_flow
from tests.stories.examples.kept_cart import cart_flow
from tests.stories.examples.parcel_batch import batch_flow
from tests.stories.examples.video_render import Film, render_flow

client = Client()


class TestVideoRender:
    @pytest.fixture
    def rendered(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Give the frames that were rendered."""
        rendered: list[int] = []
        monkeypatch.setattr(video_render, "render", lambda film, frame: rendered.append(frame))
        return rendered

    def test_a_film_is_rendered_and_nobody_waits_for_the_word_to_stop(
        self, flows: VirtualFlows, rendered: list[int]
    ) -> None:
        client.start_flow(render_flow, "film", Film("Metropolis", 4))
        flows.run()
        assert client.wait_for_flow("film", 0).single_output(str) == "rendered"
        assert rendered == [0, 1, 2, 3]

    def test_the_next_attempt_goes_on_with_the_next_frame(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rendered: list[int] = []

        def render(film: str, frame: int) -> None:
            rendered.append(frame)
            if rendered == [0, 1, 2]:
                raise MemoryError

        monkeypatch.setattr(video_render, "render", render)
        client.start_flow(render_flow, "film", Film("Metropolis", 4))
        flows.run_until_idle()
        assert rendered == [0, 1, 2, 2, 3]
        assert client.wait_for_flow("film", 0).single_output(str) == "rendered"

    @pytest.mark.django_db(transaction=True)
    def test_the_word_to_stop_ends_the_rendering_within_a_frame(
        self, flows_live: LiveFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rendering, stopped = threading.Event(), threading.Event()
        rendered: list[int] = []

        def render(film: str, frame: int) -> None:
            rendered.append(frame)
            rendering.set()
            assert stopped.wait(10)

        monkeypatch.setattr(video_render, "render", render)
        client.start_flow(render_flow, "film", Film("Metropolis", 1_000_000))
        assert rendering.wait(10)
        client.publish("film", render_flow.stop, "enough")
        result = client.wait_for_flow("film", 10)
        stopped.set()
        assert result.single_output(str) == "stopped: enough"
        assert rendered == [0]


class TestParcelBatch:
    parcels = tuple(f"parcel {number}" for number in range(8))

    def outcomes(self) -> dict[str, str | None]:
        return {each: client.get_attribute("batch", batch_flow.outcomes, each) for each in self.parcels}

    def test_three_are_on_their_way_at_a_time(self, flows: VirtualFlows) -> None:
        client.start_flow(batch_flow, "batch", list(self.parcels))
        flows.run()
        for number in (3, 3, 2, 0):
            assert rows("SELECT count(*) FROM dexflows_run WHERE flow_type = 'ParcelFlow' AND status = 'RUNNING'") == [
                (number,)
            ]
            flows.advance(600)
        assert client.wait_for_flow("batch", 0).status == "COMPLETED"
        assert self.outcomes() == dict.fromkeys(self.parcels, "sent")

    def test_a_parcel_that_cannot_be_sent_stops_no_other(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hand_over(parcel: str) -> None:
            if parcel == "parcel 1":
                raise ValueError("it has no address")

        monkeypatch.setattr(parcel_batch, "hand_over", hand_over)
        client.start_flow(batch_flow, "batch", list(self.parcels))
        flows.run_until_idle()
        assert client.wait_for_flow("batch", 0).status == "COMPLETED"
        sent = dict.fromkeys(self.parcels, "sent")
        assert self.outcomes() == {**sent, "parcel 1": "ValueError: it has no address"}

    def test_a_batch_that_is_stopped_sends_what_is_on_its_way(self, flows: VirtualFlows) -> None:
        client.start_flow(batch_flow, "batch", list(self.parcels))
        flows.run()
        client.stop_flow("batch")
        flows.run_until_idle()
        assert rows("SELECT status, count(*) FROM dexflows_run WHERE flow_type = 'ParcelFlow' GROUP BY 1") == [
            ("COMPLETED", 3)
        ]


def asked(order: str) -> tuple[int, str]:
    """What the view answers."""
    response: JsonResponse = checkout.checkout(RequestFactory().post("/checkout"), order)
    return response.status_code, json.loads(response.content)["status"]


class TestCheckout:
    def test_who_would_wait_too_long_is_told_to_come_back(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkout, "PATIENCE", WaitForStepCompletionOptions(request_timeout=0))
        assert asked("order") == (202, "pending")
        flows.run()
        assert asked("order") == (201, "shipped")
        assert rows("SELECT count(*) FROM dexflows_run") == [(1,)]

    def test_a_warehouse_that_is_away_is_asked_again_behind_the_answer(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = [ConnectionError(), ConnectionError(), False]

        def reserve(order: str) -> bool:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(checkout.warehouse, "reserve", reserve)
        monkeypatch.setattr(checkout, "PATIENCE", WaitForStepCompletionOptions(request_timeout=0))
        assert asked("order") == (202, "pending")
        flows.run_until_idle()
        assert asked("order") == (409, "sold out")
        assert client.wait_for_flow("order", 0).error_message == "sold out"

    @pytest.mark.django_db(transaction=True)
    def test_a_request_is_answered_before_the_goods_are_shipped(
        self, flows_live: LiveFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answered = threading.Event()
        monkeypatch.setattr(checkout.warehouse, "ship", lambda order: answered.wait(10))
        assert asked("order") == (201, "reserved")
        answered.set()
        assert client.wait_for_flow("order", 10).status == "COMPLETED"
        assert client.get_attribute("order", checkout_flow.status) == "shipped"


@pytest.mark.worker
def test_on_a_real_worker(story: Story, start_worker: Callable[..., StoryWorker]) -> None:
    start_worker(modules=tuple(f"tests.stories.examples.{name}" for name in ("checkout", "kept_cart", "video_render")))
    assert asked("order")[0] == 201
    assert client.wait_for_flow("order", 10).status == "COMPLETED"

    client.start_flow(render_flow, "film", Film("Metropolis", 10**9))
    story.until(lambda: story.steps("film", "heartbeat IS NOT NULL", "RenderFrames") == [(True,)])
    client.publish("film", render_flow.stop, "enough")
    assert client.wait_for_flow("film", 10).single_output(str) == "stopped: enough"
    story.until(lambda: story.steps("film", "state", "RenderFrames") == [("CANCELED",)])

    client.start_flow(cart_flow, "cart")
    assert client.invoke_rpc(cart_flow.put, "cart", "tea") == 1
    client.skip_timer("cart", StepExecutionId("KeepCart", 1), TimerId.by_condition_index(0))
    story.until(lambda: story.steps("cart", "state", "KeepCart")[1:] == [("WAITING",)])
    client.skip_timer("cart", StepExecutionId("KeepCart", 2), TimerId.by_condition_index(0))
    assert client.wait_for_flow("cart", 10).single_output(list[str]) == ["tea"]
    story.assert_at_rest()
