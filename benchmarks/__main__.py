"""`python -m benchmarks`: every row, as a table and as `benchmarks/results/latest.json`."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import django

from benchmarks import directory, profiling, report, steps
from benchmarks.servers import Servers, find_servers

RESULTS = Path(__file__).parent / "results" / "latest.json"
WHOLE_RUN_SECONDS = 8 * 60
OURS = "dexflows_benchmark"
DBOS = "dexflows_benchmark_dbos"


def main() -> None:
    """Measure what was asked for; the whole run ends within eight minutes, and so does everything it started."""
    options = _options()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(WHOLE_RUN_SECONDS)
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    os.environ["DEXFLOWS_PROFILE"] = "local"
    django.setup()
    servers = find_servers()
    with ExitStack() as stack:
        for name in (OURS, DBOS):
            stack.enter_context(servers.scratch(name))
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dexflows-benchmark-")))
        env = _environment(servers)
        _measure(options, servers, env, logs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="dexflows beside its peers, in one run")
    parser.add_argument("--only", choices=("steps", "directory"), help="one group of rows; not kept as results")
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender is measured")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="only these of the step rows")
    parser.add_argument("--profile", action="store_true", help="show where dexflows spends its time")
    return parser.parse_args()


def _environment(servers: Servers) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "DEXFLOWS_PROFILE": "local",
        "DATABASE_NAME": OURS,
        "DBOS_URL": servers.database_url(DBOS),
        "BROKER_URL": servers.broker_url,
        "REDIS_URL": servers.redis_url,
        "BROKER_KEY_PREFIX": "dexflows-benchmark:",
        "LOG_LEVEL": "WARNING",
    }


def _measure(options: argparse.Namespace, servers: Servers, env: Mapping[str, str], logs: Path) -> None:
    about = report.machine() | servers.describe()
    contenders = [c for c in steps.contenders(env) if not options.contenders or c.name in options.contenders]
    if any(contender.name == report.US for contender in contenders) or options.only == "directory":
        _migrate(env)
    if options.profile:
        profiling.profile(contenders[0], servers.database_url(OURS), logs)
        return
    rows: list[report.Row] = []
    if options.only != "directory":
        rows += steps.measure(contenders, options.rounds, logs)
    if options.only != "steps":
        rows += directory.measure(options.rounds, env, logs)
    report.print_table(rows)
    if not (options.only or options.contenders):
        settings = {contender.name: contender.settings for contender in contenders}
        report.write_json(RESULTS, about | {"settings": settings | {"directory": directory.SETTINGS}}, rows)


def _migrate(env: Mapping[str, str]) -> None:
    command = [sys.executable, "manage.py", "migrate", "--run-syncdb", "--verbosity=0"]
    subprocess.run(command, env=os.environ | env, check=True, timeout=60)


def _end(number: int, frame: object) -> None:
    raise SystemExit(f"ended by {signal.Signals(number).name}")


if __name__ == "__main__":
    main()
