"""The stories about failures keep their promises: nothing is done twice or lost, and somebody is told."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from dexflows import Client, FlowNotActiveOrNotFoundError
from dexflows.testing import VirtualFlows
from tests.stories.examples import data_export, money_transfer, seat_booking, supplier_payout
from tests.stories.examples.accounts import Account
from tests.stories.examples.data_export import export_flow
from tests.stories.examples.money_transfer import PartnerBank, Transfer, transfer_flow
from tests.stories.examples.seat_booking import Payment, Theatre, book, booking_flow
from tests.stories.examples.supplier_payout import Instruction, Payout, Verdict, payout_flow

client = Client()
HOUR, MINUTE = 3600.0, 60.0


def ended(flow_id: str) -> Any:
    """How a Flow ended: its output, or why it failed."""
    result = client.wait_for_flow(flow_id, 0)
    return result.single_output(str) if result.status == "COMPLETED" else (str(result.status), result.error_message)


class Partner(PartnerBank):
    """A partner bank with faults, each of which it has so many times."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.balance: dict[str, int] = {}
        self.withdrawn: set[str] = set()

    def deposit(self, transfer: str, owner: str, amount: int) -> None:
        self._may_fail("no answer")
        if transfer not in self.withdrawn:
            self.balance[transfer] = amount
        self._may_fail("the answer is lost")

    def withdraw_transfer(self, transfer: str) -> None:
        self._may_fail("still no answer")
        self.withdrawn.add(transfer)
        self.balance.pop(transfer, None)

    def _may_fail(self, fault: str) -> None:
        if self.faults[fault]:
            self.faults[fault] -= 1
            raise ConnectionError(fault)


class TestMoneyTransfer:
    @pytest.fixture(autouse=True)
    def _accounts(self, flows: VirtualFlows) -> None:
        with connection.schema_editor() as editor:
            editor.create_model(Account)
        Account.objects.create(owner="Ada", balance=100)

    @pytest.fixture
    def partner(self, monkeypatch: pytest.MonkeyPatch) -> Partner:
        partner = Partner()
        monkeypatch.setattr(money_transfer, "partner", partner)
        return partner

    def transfer(self, flows: VirtualFlows, amount: int = 30) -> tuple[Any, int]:
        """Make a transfer; returns how it ended and what Ada has then."""
        client.start_flow(transfer_flow, "transfer", Transfer("Ada", "Grace", amount))
        flows.run_until_idle()
        return ended("transfer"), Account.objects.get().balance

    def test_money_goes_over_once(self, flows: VirtualFlows, partner: Partner) -> None:
        partner.faults.update({"no answer": 3, "the answer is lost": 2})
        assert self.transfer(flows) == ("done", 70)
        assert partner.balance == {"transfer": 30}

    def test_money_that_is_not_there_goes_nowhere(self, flows: VirtualFlows, partner: Partner) -> None:
        assert self.transfer(flows, 101) == (("FAILED", "the account does not have so much money"), 100)
        assert partner.balance == {}

    def test_money_that_the_partner_does_not_take_comes_back(self, flows: VirtualFlows, partner: Partner) -> None:
        partner.faults.update({"no answer": 1_000, "still no answer": 3})
        assert self.transfer(flows) == ("given back", 100)
        assert client.get_attribute("transfer", transfer_flow.trouble) == "no answer"

    def test_a_deposit_whose_answers_are_lost_is_undone_before_money_comes_back(
        self, flows: VirtualFlows, partner: Partner
    ) -> None:
        partner.faults["the answer is lost"] = 1_000
        assert self.transfer(flows) == ("given back", 100)
        assert partner.balance == {}

    @pytest.mark.parametrize(("step", "ends"), [("TakeMoney", ("done", 70)), ("GiveBack", ("given back", 100))])
    def test_a_step_that_breaks_after_its_rows_are_written_changes_them_once(
        self, flows: VirtualFlows, partner: Partner, monkeypatch: pytest.MonkeyPatch, step: str, ends: Any
    ) -> None:
        kind = getattr(money_transfer, step)
        execute = kind.execute

        def break_once(self: Any, context: Any, input: Transfer) -> Any:
            decision = execute(self, context, input)
            if context.attempt == 1:
                raise RuntimeError("the process dies here")
            return decision

        monkeypatch.setattr(kind, "execute", break_once)
        partner.faults["no answer"] = 1_000 if step == "GiveBack" else 0
        assert self.transfer(flows) == ends


class TestDataExport:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, flows: VirtualFlows) -> Iterator[list[float]]:
        """Give the seconds from the start at which the service was asked; the test says what `answers` it gives."""
        began, asked = flows.now, list[float]()

        def ask(job: str) -> tuple[str | None, int | None]:
            asked.append((flows.now - began).total_seconds())
            return self.answers.pop(0) if self.answers else (None, None)

        self.answers: list[tuple[str | None, int | None]] = []
        self.canceled: list[str] = []
        monkeypatch.setattr(data_export.service, "ask", ask)
        monkeypatch.setattr(data_export.service, "cancel", self.canceled.append)
        yield asked
        monkeypatch.undo()

    def test_it_is_asked_until_it_is_ready(self, flows: VirtualFlows, asked: list[float]) -> None:
        self.answers = [(None, None)] * 9 + [("https://here", None)]
        client.start_flow(export_flow, "export", "customers")
        flows.run_until_idle()
        assert ended("export") == "https://here"
        pauses = [later - earlier for earlier, later in pairwise(asked)]
        assert all(pause <= min(5 * 2**n, 300) for n, pause in enumerate(pauses))
        assert len(asked) == 10

    def test_it_is_asked_again_when_the_service_says(self, flows: VirtualFlows, asked: list[float]) -> None:
        self.answers = [(None, 1_000), (None, 2_000), ("https://here", None)]
        client.start_flow(export_flow, "export", "customers")
        flows.run_until_idle()
        assert asked == [0, 1_000, 3_000]
        assert ended("export") == "https://here"

    def test_it_is_given_up_after_six_hours(self, flows: VirtualFlows, asked: list[float]) -> None:
        run_id = client.start_flow(export_flow, "export", "customers")
        flows.run_until_idle()
        assert 6 * HOUR <= asked[-1] < 6 * HOUR + 5 * MINUTE
        assert self.canceled == [f"job-{run_id}"]
        assert ended("export") == ("FAILED", f"job-{run_id} was not ready in time")


class TestSupplierPayout:
    @pytest.fixture(autouse=True)
    def _failing(self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[str] = []

        def pay(account: str, amount: int, key: str) -> str:
            self.tried.append(account)
            if account != "right":
                raise ValueError(f"there is no account {account}")
            return f"receipt of {key}"

        monkeypatch.setattr(supplier_payout, "pay", pay)
        client.start_flow(payout_flow, "payout", Payout("wrong", 100))
        flows.run_until_idle()

    def instruct(self, flows: VirtualFlows, verdict: Verdict, account: str | None = None) -> None:
        client.publish("payout", payout_flow.instructions, Instruction(verdict, account))
        flows.run_until_idle()

    def test_it_waits_for_an_operator_as_long_as_it_takes(self, flows: VirtualFlows) -> None:
        flows.advance(365 * 24 * HOUR)
        assert self.tried == ["wrong"] * 3
        assert client.get_attribute("payout", payout_flow.status) == "needs an operator: there is no account wrong"

    def test_the_operator_corrects_the_account(self, flows: VirtualFlows) -> None:
        self.instruct(flows, Verdict.RETRY, "right")
        assert ended("payout") == "receipt of payout"
        assert client.get_attribute("payout", payout_flow.status) == "paid"

    def test_a_retry_that_fails_too_waits_for_the_next_instruction(self, flows: VirtualFlows) -> None:
        self.instruct(flows, Verdict.RETRY)
        self.instruct(flows, Verdict.RETRY, "worse")
        assert self.tried == ["wrong"] * 6 + ["worse"] * 3
        assert client.get_attribute("payout", payout_flow.status) == "needs an operator: there is no account worse"

    def test_the_operator_leaves_it_out(self, flows: VirtualFlows) -> None:
        self.instruct(flows, Verdict.SKIP)
        assert ended("payout") == "left out"

    def test_the_operator_aborts(self, flows: VirtualFlows) -> None:
        self.instruct(flows, Verdict.ABORT)
        assert ended("payout") == ("FAILED", "aborted by an operator")


class BusyTheatre(Theatre):
    """A theatre that does not answer so many times."""

    def __init__(self) -> None:
        self.silent = 0
        self.calls: list[str] = []

    def release(self, booking: str) -> None:
        self.calls.append("release")
        if self.silent:
            self.silent -= 1
            raise ConnectionError

    def sell(self, booking: str) -> None:
        self.calls.append("sell")


class TestSeatBooking:
    @pytest.fixture(autouse=True)
    def theatre(self, flows: VirtualFlows, monkeypatch: pytest.MonkeyPatch) -> BusyTheatre:
        """Give the theatre of a booking that has begun."""
        theatre = BusyTheatre()
        monkeypatch.setattr(seat_booking, "theatre", theatre)
        book("booking", ["A1", "A2"])
        flows.run()
        return theatre

    def pay(self) -> None:
        client.publish("booking", booking_flow.payments, Payment("card", 80))

    def test_seats_are_sold_when_they_are_paid_in_time(self, flows: VirtualFlows, theatre: BusyTheatre) -> None:
        flows.advance(14 * MINUTE)
        self.pay()
        flows.run_until_idle()
        assert (ended("booking"), theatre.calls) == ("sold", ["sell"])

    def test_seats_are_free_again_when_they_are_not(self, flows: VirtualFlows, theatre: BusyTheatre) -> None:
        flows.advance(15 * MINUTE)
        assert (ended("booking"), theatre.calls) == ("released", ["release"])
        assert client.get_attribute("booking", booking_flow.status) == "released"
        with pytest.raises(FlowNotActiveOrNotFoundError):
            self.pay()

    def test_a_theatre_that_is_away_is_asked_until_it_answers(self, flows: VirtualFlows, theatre: BusyTheatre) -> None:
        theatre.silent = 5
        flows.run_until_idle()
        assert (ended("booking"), theatre.calls) == ("released", ["release"] * 6)
