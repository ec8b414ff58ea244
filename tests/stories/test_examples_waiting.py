"""The stories about waiting keep their promises, also when messages come late and handlers run again."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import mail

from dexflows import Client, FlowNotActiveOrNotFoundError, StepExecutionId, TimerId, retry_after
from dexflows.testing import VirtualFlows
from tests.stories.examples import nightly_report, notification_digest, order_approval, supplier_quotes
from tests.stories.examples.kept_cart import cart_flow
from tests.stories.examples.nightly_report import report_flow
from tests.stories.examples.notification_digest import notify
from tests.stories.examples.order_approval import Order, approval_flow
from tests.stories.examples.supplier_quotes import Inquiry, Quote, quotes_flow

client = Client()
DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def status(flow_id: str) -> str:
    return client.describe_flow(flow_id).status


def output(flow_id: str, kind: Any) -> Any:
    return client.wait_for_flow(flow_id, 0).single_output(kind)


class TestOrderApproval:
    order = Order("order-7", 900, "ada@example.com")

    @pytest.fixture(autouse=True)
    def _started(self, flows: VirtualFlows) -> None:
        client.start_flow(approval_flow, "order-7", self.order)
        flows.run()

    def test_the_answer_decides(self, flows: VirtualFlows) -> None:
        flows.advance(2 * DAY + HOUR)
        assert client.get_attribute("order-7", approval_flow.status) == "waiting"
        client.publish("order-7", approval_flow.answers, True)
        flows.run()
        assert output("order-7", str) == "approved"
        subjects = ["Please approve order-7", *(f"Reminder {n}: order-7 waits for you" for n in (1, 2))]
        assert [each.subject for each in mail.outbox] == subjects

    def test_an_answer_between_two_waits_is_kept_and_the_first_one_counts(self, flows: VirtualFlows) -> None:
        client.publish("order-7", approval_flow.answers, False, True)
        assert flows.run_until_idle() == 1
        assert output("order-7", str) == "rejected"

    def test_without_an_answer_the_order_is_dropped_after_three_reminders(self, flows: VirtualFlows) -> None:
        began = flows.now
        flows.run_until_idle()
        assert (output("order-7", str), flows.now - began, len(mail.outbox)) == ("dropped", 4 * DAY, 4)
        with pytest.raises(FlowNotActiveOrNotFoundError):
            client.publish("order-7", approval_flow.answers, True)

    def test_a_mail_server_that_is_away_only_delays_a_reminder(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def send(*arguments: Any) -> None:
            if flows.now - began < DAY + MINUTE:
                raise ConnectionError
            mail.send_mail(*arguments)

        began = flows.now
        monkeypatch.setattr(order_approval, "send_mail", send)
        flows.advance(2 * DAY + HOUR)
        assert client.get_attribute("order-7", approval_flow.reminders) == 2
        assert len(mail.outbox) == 3

    def test_an_operator_need_not_wait_for_the_next_reminder(self, flows: VirtualFlows) -> None:
        client.skip_timer("order-7", StepExecutionId("AwaitAnswer"), TimerId.by_condition_index(1))
        flows.run()
        assert client.get_attribute("order-7", approval_flow.reminders) == 1


class TestNightlyReport:
    def test_a_report_is_made_each_night(self, flows: VirtualFlows) -> None:
        two_o_clock = (flows.now + DAY).replace(hour=2, minute=0, second=0, microsecond=0)
        client.start_flow(report_flow, "report", two_o_clock)
        flows.advance(two_o_clock - flows.now - SECOND)
        assert client.get_attribute("report", report_flow.latest) is None
        for night in (two_o_clock, two_o_clock + DAY, two_o_clock + 2 * DAY):
            flows.advance(DAY)
            assert client.get_attribute("report", report_flow.latest) == f"report-{night:%Y-%m-%d}.pdf"

    def test_a_report_that_cannot_be_made_is_left_out(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[datetime] = []

        def make(night: datetime) -> str:
            tried.append(flows.now)
            if night == first:
                raise ConnectionError("the warehouse is away")
            return "report.pdf"

        monkeypatch.setattr(nightly_report, "make_report", make)
        first = flows.now + HOUR
        client.start_flow(report_flow, "report", first)
        flows.advance(DAY)
        assert len(tried) > 5
        assert HOUR <= tried[-1] - first < HOUR + 600 * SECOND
        assert client.get_attribute("report", report_flow.latest) is None
        flows.advance(HOUR)
        assert tried[-1] == first + DAY
        assert client.get_attribute("report", report_flow.latest) == "report.pdf"

    def test_after_an_outage_one_report_is_late_and_the_missed_ones_are_left_out(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[datetime] = []
        monkeypatch.setattr(nightly_report, "make_report", lambda night: made.append(night) or "")
        first = flows.now - 3 * DAY - HOUR
        client.start_flow(report_flow, "report", first)
        flows.advance(DAY)
        assert made == [first, first + 4 * DAY]


class TestKeptCart:
    @pytest.fixture(autouse=True)
    def _started(self, flows: VirtualFlows) -> None:
        client.start_flow(cart_flow, "cart")
        flows.run()

    def test_each_item_starts_the_half_hour_anew(self, flows: VirtualFlows) -> None:
        for number, item in enumerate(("tea", "cup", "pot"), 1):
            flows.advance(29 * MINUTE)
            assert client.invoke_rpc(cart_flow.put, "cart", item) == number
        flows.advance(30 * MINUTE - SECOND)
        assert status("cart") == "RUNNING"
        flows.advance(SECOND)
        assert output("cart", list[str]) == ["tea", "cup", "pot"]

    def test_an_item_for_a_cart_that_was_given_up_is_refused(self, flows: VirtualFlows) -> None:
        flows.run_until_idle()
        with pytest.raises(FlowNotActiveOrNotFoundError):
            client.invoke_rpc(cart_flow.put, "cart", "tea")

    def test_an_item_in_the_moment_of_giving_up_keeps_the_cart(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def put_at_the_last_moment(context: Any) -> list[str]:
            monkeypatch.undo()
            client.invoke_rpc(cart_flow.put, "cart", "tea")
            return []

        monkeypatch.setattr(cart_flow.items, "get", put_at_the_last_moment)
        flows.advance(30 * MINUTE)
        assert status("cart") == "RUNNING"
        flows.advance(30 * MINUTE)
        assert output("cart", list[str]) == ["tea"]


class TestSupplierQuotes:
    inquiry = Inquiry("bolt", ["Able", "Baker", "Cole"])

    @pytest.fixture
    def prices(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        prices = {"Able": 30, "Baker": 10, "Cole": 20}
        monkeypatch.setattr(supplier_quotes, "ask", lambda supplier, article: prices[supplier])
        return prices

    def test_the_best_of_all_answers_is_taken_at_once(self, flows: VirtualFlows, prices: dict[str, int]) -> None:
        client.start_flow(quotes_flow, "bolts", self.inquiry)
        flows.run()
        assert output("bolts", Quote) == Quote("Baker", 10)

    def test_a_supplier_that_cannot_be_reached_makes_no_offer(
        self, flows: VirtualFlows, prices: dict[str, int]
    ) -> None:
        del prices["Baker"]
        client.start_flow(quotes_flow, "bolts", self.inquiry)
        began = flows.now
        flows.run_until_idle()
        assert output("bolts", Quote) == Quote("Cole", 20)
        assert flows.now - began < MINUTE

    def test_when_the_time_is_up_the_answers_that_are_there_decide(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ask(supplier: str, article: str) -> int:
            if supplier == "Baker":
                raise retry_after(2 * HOUR)
            return 30

        monkeypatch.setattr(supplier_quotes, "ask", ask)
        client.start_flow(quotes_flow, "bolts", self.inquiry)
        flows.advance(HOUR - SECOND)
        assert status("bolts") == "RUNNING"
        flows.advance(SECOND)
        assert output("bolts", Quote) == Quote("Able", 30)
        assert flows.run_until_idle() == 0

    def test_nobody_makes_an_offer(self, flows: VirtualFlows, prices: dict[str, int]) -> None:
        prices.clear()
        client.start_flow(quotes_flow, "bolts", self.inquiry)
        flows.run_until_idle()
        result = client.wait_for_flow("bolts", 0)
        assert (result.status, result.error_message) == ("FAILED", "nobody makes an offer")


class TestNotificationDigest:
    def test_all_of_a_quarter_of_an_hour_go_out_together(self, flows: VirtualFlows) -> None:
        for text in ("one", "two", "three"):
            notify("ada@example.com", text)
            flows.advance(5 * MINUTE - SECOND)
        assert mail.outbox == []
        flows.advance(3 * SECOND)
        (sent,) = mail.outbox
        assert (sent.subject, sent.body, sent.to) == ("3 notifications", "one\ntwo\nthree", ["ada@example.com"])
        assert status("digest-ada@example.com") == "COMPLETED"

    def test_the_next_one_starts_anew(self, flows: VirtualFlows) -> None:
        for text in ("one", "two"):
            notify("ada@example.com", text)
            flows.run_until_idle()
        assert [each.body for each in mail.outbox] == ["one", "two"]

    def test_one_that_comes_while_the_mail_is_sent_goes_out_with_the_next(
        self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def send(*arguments: Any) -> None:
            if not mail.outbox:
                notify("ada@example.com", "two")
            mail.send_mail(*arguments)

        monkeypatch.setattr(notification_digest, "send_mail", send)
        notify("ada@example.com", "one")
        run_id = client.describe_flow("digest-ada@example.com").run_id
        flows.run_until_idle()
        assert [each.body for each in mail.outbox] == ["one", "two"]
        assert client.describe_flow("digest-ada@example.com").run_id == run_id
        assert client.wait_for_flow("digest-ada@example.com", 0).single_output(int) == 1
