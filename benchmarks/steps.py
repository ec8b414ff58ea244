"""Rows one and two: ten-Step Flows, many at once and one alone, beside a Celery chain and DBOS.

Each round starts a contender's processes afresh, warms them up, measures both rows and ends them, so that nobody is
measured beside another's idle workers. The order turns from round to round.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.processes import Driver, Process
from benchmarks.report import US, Budget, Row

CORES = os.cpu_count() or 1
CONCURRENCY = 2 * CORES  # of both Celery workers; a process that waits for a commit leaves its core to another
FLOWS = 200
STEPS = 10
ALONE = 30
WARM_UP = 20
TIMEOUT = 120.0

US_SYNC = f"{US}, SYNC"
CHAIN = "celery chain"
DBOS = "dbos"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """What runs ten-Step Flows: a driver module, and the workers it needs besides."""

    name: str
    driver: str
    drivers: int = 1
    worker: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


def _celery_worker(app: str) -> tuple[str, ...]:
    command = ("-m", "celery", "-A", app, "worker", "--loglevel=WARNING", f"--concurrency={CONCURRENCY}")
    return (*command, "--without-gossip", "--without-mingle", "--without-heartbeat")


def contenders(env: Mapping[str, str]) -> list[Contender]:
    """The three, each with the setting that was fastest for it; `env` tells where the servers are."""
    return [
        Contender(
            name=US,
            driver="benchmarks.ten_steps",
            worker=_celery_worker("config"),
            env={**env, "BENCHMARK_DURABILITY": "ASYNC"},
            settings={"concurrency": CONCURRENCY, "durability": "ASYNC", "pool": "prefork"},
        ),
        Contender(
            name=US_SYNC,
            driver="benchmarks.ten_steps",
            worker=_celery_worker("config"),
            env={**env, "BENCHMARK_DURABILITY": "SYNC"},
            settings={"concurrency": CONCURRENCY, "durability": "SYNC", "pool": "prefork"},
        ),
        Contender(
            name=CHAIN,
            driver="benchmarks.peers.celery_chain",
            worker=_celery_worker("benchmarks.peers.celery_chain"),
            env=env,
            settings={
                "concurrency": CONCURRENCY,
                "pool": "prefork",
                "prefetch": 16,
                "acks": "early",
                "result_backend": None,
            },
        ),
        Contender(
            name=DBOS,
            driver="benchmarks.peers.dbos_workflows",
            drivers=CORES,
            env=env,
            settings={"processes": CORES, "threads": 8, "started": "in process"},
        ),
    ]


def rows() -> tuple[Row, Row]:
    """The rows without their numbers."""
    return (
        Row(
            name=f"durable Steps per second, {FLOWS} Flows of {STEPS} Steps",
            unit="Steps/s",
            more_is_better=True,
            budgets=(Budget(peer=DBOS, ratio=4), Budget(peer=CHAIN, ratio=3)),
        ),
        Row(
            name=f"one Flow of {STEPS} Steps on an idle system, p50",
            unit="ms",
            more_is_better=False,
            budgets=(Budget(peer=CHAIN, ratio=1 / 3),),
        ),
    )


def measure(contenders: Sequence[Contender], rounds: int, logs: Path) -> tuple[Row, Row]:
    """Both rows, `rounds` times."""
    throughput, alone = rows()
    for number in range(rounds):
        turn = number % len(contenders)
        for contender in (*contenders[turn:], *contenders[:turn]):
            seconds, latencies = _measure_once(contender, logs)
            per_second, p50 = FLOWS * STEPS / seconds, median(latencies) * 1000
            throughput.add(contender.name, per_second)
            alone.add(contender.name, p50)
            print(f"round {number + 1}: {contender.name}: {per_second:,.0f} Steps/s, alone {p50:.1f} ms", flush=True)
    return throughput, alone


def _measure_once(contender: Contender, logs: Path) -> tuple[float, list[float]]:
    with running(contender, logs) as drivers:
        run(drivers, WARM_UP)
        begun = time.perf_counter()
        run(drivers, FLOWS)
        return time.perf_counter() - begun, drivers[0].ask("latency", count=ALONE, timeout=TIMEOUT)


@contextmanager
def running(contender: Contender, logs: Path) -> Iterator[list[Driver]]:
    """The contender's worker and drivers, for the time of a `with` block."""
    log = logs / f"{contender.name.replace(' ', '-')}.log"
    with ExitStack() as stack:
        if contender.worker:
            stack.enter_context(Process(contender.worker, contender.env, log))
        yield [stack.enter_context(Driver(contender.driver, contender.env, log)) for _ in range(contender.drivers)]


def run(drivers: Sequence[Driver], flows: int) -> None:
    for driver in drivers:
        driver.send("run", flows=flows // len(drivers))
    for driver in drivers:
        driver.receive(TIMEOUT)
