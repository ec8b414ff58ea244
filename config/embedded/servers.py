"""The two servers: how each is prepared, started, asked whether it answers, and stopped."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql

from config.embedded import binaries, places
from config.embedded.places import POSTGRES, VALKEY, Account

DATABASE = "dexflows"
SUPERUSER = "dexflows"

POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    "random_page_cost": "1.1",
    "jit": "off",
    "autovacuum_naptime": "10s",
    "log_line_prefix": "%m [%p] %a ",
}


class Server(Protocol):
    """What a keeper needs to know of a server."""

    socket_dir: Path
    data_dir: Path
    version: str
    account: Account | None
    stop_signal: signal.Signals

    def prepare(self) -> None:
        """Make the folders and, the first time, the data. No server runs meanwhile."""

    def command(self) -> list[str]:
        """Give the command line of the server in the foreground."""

    def answers(self) -> bool:
        """Tell whether the server answers, and finish what needs a running server."""


def server_for(service: str, state_dir: Path) -> Server:
    """Give the server of that name."""
    return Postgres(state_dir) if service == POSTGRES else Valkey(state_dir)


class Postgres:
    """PostgreSQL on a Unix socket that only its user (and root) can reach; so it needs no password."""

    stop_signal = signal.SIGINT

    def __init__(self, state_dir: Path) -> None:
        newcomer = places.account_for(None)
        self.place = places.place(state_dir, POSTGRES, newcomer)
        self.programs = binaries.find_postgres(newcomer)
        self.version = self.programs.version
        # A major version reads only its own data; another one starts with an empty folder beside it.
        self.data_dir = self.place / f"data-{self.programs.major}"
        self.account = places.account_for(self.data_dir)
        inside = places.socket_dir(state_dir, POSTGRES)
        in_checkout = self.place == places.home(state_dir, POSTGRES)
        is_outside = inside.parent != places.home(state_dir, POSTGRES)
        self.socket_dir = inside if in_checkout or is_outside else self.place / "socket"

    def prepare(self) -> None:
        """Make the socket's folder and, once, the cluster."""
        places.make_private(self.socket_dir, self.account)
        for leftover in self.socket_dir.glob(".s.PGSQL.*"):
            leftover.unlink()
        if (self.data_dir / "PG_VERSION").exists():
            self._forget_reused_pid()
            return
        # In a draft folder, so that a killed initdb leaves no half of a cluster.
        draft = self.data_dir.with_name(f"{self.data_dir.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        places.make_private(draft, self.account)
        self._initdb(draft)
        draft.rename(self.data_dir)

    def _forget_reused_pid(self) -> None:
        # The keeper made sure that our server is gone. PostgreSQL would take any process that got its pid since for it.
        pid_file = self.data_dir / "postmaster.pid"
        with suppress(FileNotFoundError, ValueError, IndexError, OSError):
            os.kill(int(pid_file.read_text().split()[0]), 0)
            pid_file.unlink()

    def _initdb(self, folder: Path) -> None:
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if self.programs.major >= 17 else []
        command = [str(self.programs.bin_dir / "initdb"), "-D", str(folder), "-U", SUPERUSER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", *locale, "--no-instructions"]
        who = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []} if self.account else {}
        subprocess.run(command, cwd="/", check=True, timeout=120, **who)  # type: ignore[call-overload]

    def command(self) -> list[str]:
        """Give the server's command line."""
        settings = POSTGRES_SETTINGS | {"unix_socket_directories": str(self.socket_dir)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self.programs.bin_dir / "postgres"), "-D", str(self.data_dir), *options]

    def answers(self) -> bool:
        """Connect, and make the database if it is not there."""
        try:
            with psycopg.connect(
                host=str(self.socket_dir), user=SUPERUSER, dbname="postgres", autocommit=True, connect_timeout=5
            ) as connection:
                known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if known is None:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True


class Valkey:
    """Valkey on a private Unix socket, without persistence: what it holds is a hint, PostgreSQL has the truth."""

    stop_signal = signal.SIGTERM
    account: Account | None = None

    def __init__(self, state_dir: Path) -> None:
        self.program = binaries.find_valkey()
        self.version = self.program.name
        self.data_dir = places.home(state_dir, VALKEY)
        self.socket_dir = places.socket_dir(state_dir, VALKEY)

    def prepare(self) -> None:
        """Make the socket's folder."""
        places.make_private(self.socket_dir)
        (self.socket_dir / "valkey.sock").unlink(missing_ok=True)

    def command(self) -> list[str]:
        """Give the server's command line."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket_dir / "valkey.sock"),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "dir": str(self.data_dir),
            "daemonize": "no",
        }
        return [str(self.program), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def answers(self) -> bool:
        """Send a PING."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            try:
                client.connect(str(self.socket_dir / "valkey.sock"))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
            except OSError:
                return False
