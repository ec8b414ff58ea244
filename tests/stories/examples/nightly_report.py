"""Each night at two a report is made, for as long as the Flow runs.

The night is the Step's input, so the times never drift. A report that cannot be made is left out after an hour, and
the nights go on. After an outage one report is made late, and those whose time is past by then are left out.
"""

from datetime import datetime, timedelta

from dexflows import (
    Attribute,
    Context,
    Flow,
    PersistenceSchema,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    Timer,
    Wait,
    go_to,
    register,
)

DAY = timedelta(days=1)


def make_report(night: datetime) -> str:
    """Make the report and return its file name; in real life a long query."""
    return f"report-{night:%Y-%m-%d}.pdf"


class MakeReport(Step[datetime]):
    """Waits for its night, and makes the report."""

    def wait_for(self, context: Context, input: datetime) -> Wait:
        return Wait.until(Timer.by_duration(max(input - context.attempt_started_at, timedelta())))

    def execute(self, context: Context, input: datetime) -> StepDecision:
        ReportFlow.latest.set(context, make_report(input))
        return go_to(MakeReport, next_night(input, context))

    def get_step_options(self) -> StepOptions:
        return StepOptions(
            execute_retry=RetryPolicy(initial_interval=60, maximum_interval=600, total_duration=timedelta(hours=1))
        ).on_execute_failure_proceed_to(LeaveOut)


class LeaveOut(Step[datetime]):
    """Takes over when a report could not be made: writes it down, and goes on with the next night."""

    def execute(self, context: Context, input: datetime) -> StepDecision:
        context.record_event("report left out", str(context.recovery_error))
        return go_to(MakeReport, next_night(input, context))


def next_night(night: datetime, context: Context) -> datetime:
    """The first night after this one that is not over yet."""
    missed = max((context.attempt_started_at - night) // DAY, 0)
    return night + (missed + 1) * DAY


class ReportFlow(Flow[datetime]):
    latest = Attribute("latest-report", str)

    def get_steps(self) -> StepList[datetime]:
        return StepList.start_step(MakeReport()).other_steps(LeaveOut())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.latest)


report_flow = register(ReportFlow())
