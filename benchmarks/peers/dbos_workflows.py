"""A DBOS workflow of ten steps on the same PostgreSQL.

Workflows are started in the process that runs them, so that there is no queue to poll, with one process per core. One
or three processes, 2 to 16 threads, async workflows and a queue were tried on two cores and were no faster.
"""

import os

from dbos import DBOS

from benchmarks.driver import serve, timed

STEPS = 10
THREADS = 8
END_SECONDS = 60


@DBOS.step()
def step(value: int) -> int:
    """The work of one step."""
    return value + 1


@DBOS.workflow()
def ten_steps(value: int) -> int:
    """Ten steps, each recorded before the next begins."""
    for _ in range(STEPS):
        value = step(value)
    return value


def run(flows: int) -> None:
    """Start that many workflows, then wait for all."""
    handles = [DBOS.start_workflow(ten_steps, 0) for _ in range(flows)]
    for handle in handles:
        if handle.get_result() != STEPS:
            raise RuntimeError("a workflow ended with the wrong value")


def main() -> None:
    """Launch DBOS and take commands."""
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": os.environ["DBOS_URL"],
            "executor_id": str(os.getpid()),
            "application_version": "benchmark",
            "max_executor_threads": THREADS,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    serve(run=run, latency=lambda count: timed(lambda: run(1), count))
    DBOS.destroy()


if __name__ == "__main__":
    main()
