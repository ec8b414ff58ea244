"""`manage.py devserver`: what `make run` runs. The whole system on 127.0.0.1, with sample data, until Ctrl-C."""

import csv
import io
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections
from django.urls import reverse
from rich.console import Console

from config import environ, login
from config.celery import app
from config.supervisor import Stopped, Supervisor, raise_stopped_on_signals

HOST = "127.0.0.1"
DIRECTORY_PATH = "/patterns/hash-partitioned-attribute-map"
READY_SECONDS = 60.0
EXAMPLE = {
    "emailAddress": "Ada@Example.com",
    "fullName": "Ada Lovelace",
    "companyName": "Engines",
    "customerTier": "gold",
}
SAMPLE = Path(settings.BASE_DIR) / "directory" / "data" / "sample_customers.csv"


class Command(BaseCommand):
    """Starts everything and stops everything."""

    help = "Run web, workers and, where none are configured, PostgreSQL and Valkey, on this machine, until Ctrl-C."

    def handle(self, *args: Any, **options: Any) -> None:
        """Start all parts, print one banner when they answer, and wait."""
        if not settings.LOCAL:
            raise CommandError("This command opens the API to everybody on this machine. Set DEXFLOWS_PROFILE=local.")
        console = Console(highlight=False)
        port = environ.number("PORT", 8000)
        _refuse_taken_port(port)
        supervisor = Supervisor(report=lambda line: console.print(f"[yellow]{line}[/]"))
        began = time.monotonic()
        raise_stopped_on_signals()
        try:
            self._start(console, supervisor, port)
            took = time.monotonic() - began
            console.print(_banner(port, took), soft_wrap=True, markup=False)
            # This process only watches from here on; its children have connections of their own.
            connections.close_all()
            supervisor.watch()
        except Stopped:
            console.print("\nStopping …")
        except RuntimeError as error:
            raise CommandError(str(error)) from error
        finally:
            supervisor.stop()
            _release_servers()
        console.print("Stopped. The data is kept for the next `make run`.")

    def _start(self, console: Console, supervisor: Supervisor, port: int) -> None:
        console.print("Preparing the database …")
        call_command("migrate", verbosity=0, interactive=False)
        app.connection_for_write().ensure_connection(max_retries=3, interval_start=1)
        console.print("Starting web and workers …")
        supervisor.start("web", web_command(port))
        supervisor.start("worker", _worker_command())
        _fill_directory()
        _wait_until_ready(supervisor, port)


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"Port {port} is taken. Choose another: PORT={port + 1} make run") from error


def web_command(port: int) -> list[str]:
    """The command that starts the web server on this machine alone."""
    command = [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", f"{HOST}:{port}", "--log-level", "warning"]
    return [*command, "--workers", "2", "--threads", "8", "--preload", "--graceful-timeout", "5", "--no-control-socket"]


def _worker_command() -> list[str]:
    command = [sys.executable, "-W", "ignore", "-m", "celery", "--quiet", "-A", "config", "worker"]
    return [*command, "--concurrency", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]


def _fill_directory() -> None:
    """Start the directory, and save the sample customers the first time."""
    from directory.client import find_profile

    call_command("start_customer_directory", stdout=io.StringIO())
    with SAMPLE.open(newline="") as file:
        addresses = [row["emailAddress"] for row in csv.DictReader(file)]
    if addresses and find_profile(addresses[-1]) is None:
        call_command("import_customer_profiles", str(SAMPLE), stdout=io.StringIO())


def _administrator() -> User:
    user, created = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    if created:
        user.set_unusable_password()
        user.save()
    return user


def _wait_until_ready(supervisor: Supervisor, port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    waiting = {"web": lambda: _web_answers(port), "workers": _worker_answers}
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{' and '.join(waiting)} did not answer within {READY_SECONDS:.0f} s.")
        supervisor.check()
        waiting = {name: answers for name, answers in waiting.items() if not answers()}


def _web_answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        time.sleep(0.05)
        return False


def _worker_answers() -> bool:
    return bool(app.control.inspect(timeout=0.3, limit=1).ping())


def _banner(port: int, seconds: float) -> str:
    base = f"http://{HOST}:{port}"
    link = base + reverse("local-login", args=[login.issue(_administrator())])
    profile = json.dumps(EXAMPLE, separators=(",", ":"))
    lines = [
        f"Admin (logs in once)  {link}",
        f"API docs              {base}{reverse('docs')}",
        f"Database              {_database_place()}",
        "",
        f"curl -X PUT {base}{DIRECTORY_PATH}/customer-profile -H 'Content-Type: application/json' -d '{profile}'",
        f"curl '{base}{DIRECTORY_PATH}/customer-profile?emailAddress=ada@example.com'",
        "",
        f"Ready after {seconds:.1f} s. Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def _database_place() -> str:
    settings_dict = connection.settings_dict
    return f"{settings_dict['NAME']} on {settings_dict['HOST'] or 'localhost'}"


def _release_servers() -> None:
    connections.close_all()
    app.close()
    if "config.embedded" not in sys.modules:
        return
    from config import embedded

    for service in (embedded.VALKEY, embedded.POSTGRES):
        embedded.release(service, settings.STATE_DIR, wait_seconds=10.0)
