"""The user's side of an embedded server: hold a lease on it, and have it started if it is not there."""

import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from config.embedded.places import home

START_SECONDS = 60.0
POLL_SECONDS = 0.02


class EmbeddedServerError(RuntimeError):
    """An embedded server could not be started; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running embedded server, as its keeper describes it."""

    socket_dir: str
    pid: int
    data_dir: str
    version: str


@dataclass(frozen=True, kw_only=True)
class _Lease:
    running: Running
    fd: int
    keeper: "subprocess.Popen[bytes] | None"


_leases: dict[Path, _Lease] = {}


def ensure(service: str, state_dir: Path) -> Running:
    """Have the server running for as long as this process lives, and tell where it is."""
    folder = home(state_dir, service)
    if lease := _leases.get(folder):
        return lease.running
    users = start = None
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        users = take_lock(folder / "users.lock", fcntl.LOCK_SH)
        start = take_lock(folder / "start.lock", fcntl.LOCK_EX)
        running, keeper = _find_or_start(service, state_dir, folder)
    except BaseException as error:
        drop_lock(users)
        if isinstance(error, PermissionError):
            raise EmbeddedServerError(
                f"{folder} belongs to another user: run as that user, or set DATABASE_URL and BROKER_URL."
            ) from error
        raise
    finally:
        drop_lock(start)
    _leases[folder] = _Lease(running=running, fd=users, keeper=keeper)
    return running


def release(service: str, state_dir: Path, *, wait_seconds: float = 0.0) -> None:
    """Give the lease back before this process ends; wait for the server to stop if it had no other user."""
    folder = home(state_dir, service)
    lease = _leases.pop(folder, None)
    if lease is None:
        return
    os.close(lease.fd)
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline and has_keeper(folder):
        time.sleep(POLL_SECONDS)


def take_lock(path: Path, kind: int) -> int:
    """Open a file and lock it; the lock ends with the process, or with `drop_lock`."""
    # Read-only is enough for flock, and lets another user of the machine share a checkout.
    fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, kind)
    except BaseException:
        os.close(fd)
        raise
    return fd


def try_lock(path: Path, kind: int) -> int | None:
    """Lock a file if nobody has it; otherwise give None."""
    try:
        return take_lock(path, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def drop_lock(fd: int | None) -> None:
    """Give a lock back."""
    if fd is not None:
        os.close(fd)


def has_keeper(folder: Path) -> bool:
    """Tell whether a keeper lives."""
    fd = try_lock(folder / "keeper.lock", fcntl.LOCK_SH)
    drop_lock(fd)
    return fd is None


def read_ready(folder: Path) -> Running | None:
    """Read what the keeper has written once its server answered."""
    try:
        return Running(**json.loads((folder / "ready.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _find_or_start(service: str, state_dir: Path, folder: Path) -> "tuple[Running, subprocess.Popen[bytes] | None]":
    own_keeper = None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if has_keeper(folder):
            if running := read_ready(folder):
                return running, own_keeper
        elif own_keeper is None:  # None was there, or the one that was there was told to stop and is gone now.
            (folder / "ready.json").unlink(missing_ok=True)
            own_keeper = _start_keeper(service, state_dir, folder)
        elif own_keeper.poll() is not None:
            raise EmbeddedServerError(_explain(service, folder))
        time.sleep(POLL_SECONDS)
    raise EmbeddedServerError(f"{service} did not start within {START_SECONDS:.0f} s. {_explain(service, folder)}")


def _start_keeper(service: str, state_dir: Path, folder: Path) -> "subprocess.Popen[bytes]":
    project = Path(__file__).resolve().parent.parent.parent
    with (folder / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "config.embedded.keeper", service, str(state_dir.resolve())],
            cwd=project,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Its own session: Ctrl-C in a terminal is for the users of the server, not for the server.
            start_new_session=True,
        )


def _explain(service: str, folder: Path) -> str:
    tail = ""
    for name in ("keeper.log", "server.log"):
        with suppress(OSError):
            tail += "\n".join((folder / name).read_text(errors="replace").splitlines()[-8:]) + "\n"
    variable = "DATABASE_URL" if service == "postgres" else "BROKER_URL"
    return f"The embedded {service} did not start; {variable} can name another server. Logs in {folder}:\n{tail}"
