"""A service makes an export and does not say when it is ready, so it is asked again and again.

The pauses grow from five seconds to five minutes and occupy no worker. Where the service says how long to wait, that
is done. After six hours the export is given up, and the service is told.
"""

from datetime import timedelta

from dexflows import (
    Context,
    Flow,
    RetryPolicy,
    Step,
    StepDecision,
    StepList,
    StepOptions,
    force_fail,
    go_to,
    graceful_complete,
    register,
    retry_after,
)


class ExportService:
    """The service; in real life calls over HTTP."""

    def begin(self, name: str, key: str) -> str:
        """Begin an export, once for each key, and return its job."""
        return f"job-{key}"

    def ask(self, job: str) -> tuple[str | None, int | None]:
        """Where the finished export is, or None; and after how many seconds to ask again, if the service says so."""
        return f"https://exports.example.com/{job}", None

    def cancel(self, job: str) -> None:
        """Give a job up; one that was given up before is no error."""


service = ExportService()


class NotReady(Exception):  # noqa: N818 - it is no error
    """The export takes longer."""


class BeginExport(Step[str]):
    """Begins; the key keeps a second attempt from beginning a second export."""

    def execute(self, context: Context, input: str) -> StepDecision:
        return go_to(AwaitExport, service.begin(input, context.run_id))


class AwaitExport(Step[str]):
    """Asks for the job that is its input. Each attempt is one question."""

    def execute(self, context: Context, input: str) -> StepDecision:
        url, ask_again_in = service.ask(input)
        if url is not None:
            return graceful_complete(url)
        if ask_again_in is not None:
            raise retry_after(ask_again_in, NotReady())
        raise NotReady

    def get_step_options(self) -> StepOptions:
        return StepOptions(
            execute_retry=RetryPolicy(
                initial_interval=5, backoff_coefficient=2, maximum_interval=300, total_duration=timedelta(hours=6)
            )
        ).on_execute_failure_proceed_to(GiveUp)


class GiveUp(Step[str]):
    """Takes over after the last question."""

    def execute(self, context: Context, input: str) -> StepDecision:
        service.cancel(input)
        return force_fail(f"{input} was not ready in time")


class ExportFlow(Flow[str]):
    def get_steps(self) -> StepList[str]:
        return StepList.start_step(BeginExport()).other_steps(AwaitExport(), GiveUp())


export_flow = register(ExportFlow())
