"""Several suppliers are asked for a price at the same time, and the best answer is taken.

The choice is made when all have answered or after an hour with what is there, and then nobody is asked any longer. A
supplier that cannot be reached counts as one that makes no offer.
"""

from dataclasses import dataclass
from datetime import timedelta

from dexflows import (
    Channel,
    ConditionCombination,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    StepOptions,
    Timer,
    Wait,
    dead_end,
    force_complete,
    force_fail,
    go_to_many,
    register,
)

PATIENCE = timedelta(hours=1)


@dataclass
class Inquiry:
    article: str
    suppliers: list[str]


@dataclass
class Question:
    article: str
    supplier: str


@dataclass
class Quote:
    supplier: str
    price: int | None


def ask(supplier: str, article: str) -> int:
    """The supplier's price; in real life a call over HTTP."""
    return len(supplier) * len(article)


class AskAll(Step[Inquiry]):
    """Goes on with one Step for each supplier, and with the one that waits for their answers."""

    def execute(self, context: Context, input: Inquiry) -> StepDecision:
        questions = [StepMovement.of(AskOne, Question(input.article, each)) for each in input.suppliers]
        return go_to_many(StepMovement.of(ChooseQuote, len(questions)), *questions)


class AskOne(Step[Question]):
    """Asks one supplier; the answer is a message to the Step that chooses."""

    def execute(self, context: Context, input: Question) -> StepDecision:
        QuotesFlow.quotes.publish(context, Quote(input.supplier, ask(input.supplier, input.article)))
        return dead_end()

    def get_step_options(self) -> StepOptions:
        return StepOptions(
            execute_method_timeout=30, execute_retry=RetryPolicy(maximum_attempts=5)
        ).on_execute_failure_proceed_to(NoOffer)


class NoOffer(Step[Question]):
    """Answers for a supplier that cannot be reached."""

    def execute(self, context: Context, input: Question) -> StepDecision:
        QuotesFlow.quotes.publish(context, Quote(input.supplier, None))
        return dead_end()


class ChooseQuote(Step[int]):
    """Waits for all answers, or until it is time to choose from those that are there; the input is their number."""

    def wait_for(self, context: Context, input: int) -> Wait:
        all_answers = QuotesFlow.quotes.for_n(input, condition_id="all")
        some_answers = QuotesFlow.quotes.at_most(input, condition_id="some")
        time_is_up = Timer.by_duration(PATIENCE, condition_id="time is up")
        return Wait.any_combination_of(
            ConditionCombination.of(all_answers), ConditionCombination.of(time_is_up, some_answers)
        )

    def execute(self, context: Context, input: int) -> StepDecision:
        offers = [(each.price, each.supplier) for each in QuotesFlow.quotes.results(context) if each.price is not None]
        if not offers:
            return force_fail("nobody makes an offer")
        price, supplier = min(offers)
        return force_complete(Quote(supplier, price))


class QuotesFlow(Flow[Inquiry]):
    quotes = Channel("quotes", Quote)

    def get_steps(self) -> StepList[Inquiry]:
        return StepList.start_step(AskAll()).other_steps(AskOne(), NoOffer(), ChooseQuote())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.quotes)


quotes_flow = register(QuotesFlow())
