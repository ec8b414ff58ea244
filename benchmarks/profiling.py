"""`--profile`: where dexflows spends the time of a Step, by process, by SQL function and by Python function."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil
import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from benchmarks import steps
from benchmarks.processes import Driver

SECONDS = 8
RATE = 400
SHOWN = 50
TASK = "run_step (dexflows/tasks.py)"
IDLE = (
    "_epoll.poll (kombu/utils/eventio.py)",
    "Alarm.wait (dexflows/worker/alarm.py)",
    "Condition.wait (threading.py)",
)
OUTSIDE = "outside of run_step: Celery, kombu, the parent"
FUNCTIONS = """
    SELECT funcname, calls, total_time, self_time FROM pg_stat_user_functions WHERE calls > 0 ORDER BY self_time DESC
"""


def profile(contender: steps.Contender, database_url: str, logs: Path) -> None:
    """Run Flows for some seconds and print three tables. Sampling slows it down, so the rates are no results."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET track_functions = pl").format(database))
        with steps.running(contender, logs) as drivers:
            steps.run(drivers, steps.WARM_UP)
            connection.execute("SELECT pg_stat_reset()")
            before, begun = _cpu_seconds(connection.info.dbname), time.perf_counter()
            rounds = 0
            while time.perf_counter() - begun < SECONDS:
                steps.run(drivers, steps.FLOWS)
                rounds += 1
            done = rounds * steps.FLOWS * steps.STEPS
            _print_cpu(before, _cpu_seconds(connection.info.dbname), done, time.perf_counter() - begun)
            time.sleep(1.5)  # the server's statistics arrive late
            _print_functions(connection.execute(FUNCTIONS).fetchall(), done)
            _print_samples(_sample(drivers, logs))


def _cpu_seconds(database: str) -> Counter[str]:
    """User and system time so far of our own children, and of the server's sessions in this database."""
    spent: Counter[str] = Counter()
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        words = " ".join(process.info["cmdline"] or [])
        session = f" {database} " in words and "postgres" in words
        if process.info["cpu_times"] and (session or process.pid in children):
            kind = "PostgreSQL" if session else "worker" if "celery" in words else "driver"
            spent[kind] += process.info["cpu_times"].user + process.info["cpu_times"].system
    return spent


def _print_cpu(before: Counter[str], after: Counter[str], done: int, seconds: float) -> None:
    table = Table("process", "CPU µs a Step", title=f"{done:,} Steps in {seconds:.1f} s: {done / seconds:,.0f} Steps/s")
    for kind, spent in after.most_common():
        table.add_row(kind, f"{(spent - before[kind]) / done * 1e6:,.0f}")
    Console(width=140).print(table)


def _print_functions(found: Iterable[tuple[str, int, float, float]], done: int) -> None:
    table = Table("SQL function", "calls a Step", "ms a call", "µs a Step, with callees", "µs a Step, itself")
    for name, calls, total, own in found:
        times = (f"{spent / done * 1e3:.0f}" for spent in (total, own))
        table.add_row(name, f"{calls / done:.2f}", f"{total / calls:.3f}", *times)
    Console(width=140).print(table)


def _sample(drivers: list[Driver], logs: Path) -> Path:
    """Collapsed stacks of the worker and its children while Flows run."""
    stacks = logs / "stacks.txt"
    worker = next(p for p in psutil.process_iter(["cmdline"]) if _is_worker(p))
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    options = ("--subprocesses", f"--rate={RATE}", f"--duration={SECONDS}", "--format=raw", f"--output={stacks}")
    sampler = subprocess.Popen([py_spy, "record", f"--pid={worker.pid}", *options], stdout=subprocess.DEVNULL)
    while sampler.poll() is None:
        steps.run(drivers, steps.FLOWS)
    return stacks


def _is_worker(process: psutil.Process) -> bool:
    parent = process.parent()
    return "celery" in (process.info["cmdline"] or []) and bool(parent and parent.pid == psutil.Process().pid)


def _print_samples(stacks: Path) -> None:
    """What the worker's processes were doing: below the task by function, outside of it as one line."""
    inclusive: Counter[str] = Counter()
    own: Counter[str] = Counter()
    everything = 0
    for line in stacks.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in stack.split(";")]
        if frames[-1] in IDLE:
            continue
        frames = frames[frames.index(TASK) :] if TASK in frames else [OUTSIDE]
        inclusive.update(dict.fromkeys(frames, int(count)))
        own[frames[-1]] += int(count)
        everything += int(count)
    table = Table("Python function", "% with callees", "% itself", title=f"{everything:,} samples of the worker")
    for frame, found in inclusive.most_common(SHOWN):
        table.add_row(frame, f"{100 * found / everything:.1f}", f"{100 * own[frame] / everything:.1f}")
    Console(width=140).print(table)
