"""The keeper of one embedded server: `python -m config.embedded.keeper SERVICE STATE_DIR`.

Starts the server, restarts it if it dies, and stops it when its last user is gone. The package's docstring explains
the locks.
"""

import ctypes
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil

from config.embedded.leases import Running, drop_lock, try_lock
from config.embedded.places import home
from config.embedded.servers import Server, server_for

logger = logging.getLogger("config.embedded.keeper")

GRACE_SECONDS = 1.5
TICK_SECONDS = 0.1
ANSWER_SECONDS = 45.0
STOP_SECONDS = 20.0
LOCK_SECONDS = 1.0
RESTARTS_ALLOWED = 5
PR_SET_PDEATHSIG = 1


class Keeper:
    """Runs one server for as long as it has users."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.child: subprocess.Popen[bytes] | None = None
        self.told_to_stop = False
        self.idle_since: float | None = None
        self.users_lock: int | None = None

    def run(self) -> None:
        """Keep the server until nobody uses it."""
        self._end_leftover()
        self.server.prepare()
        self._start()
        restarts = 0
        try:
            while not self.told_to_stop and not self._is_unused():
                if self.child is not None and self.child.poll() is not None:
                    restarts += 1
                    logger.error("The server ended with status %s", self.child.returncode)
                    if restarts > RESTARTS_ALLOWED:
                        raise RuntimeError("The server keeps ending; see server.log.")
                    self.server.prepare()
                    self._start()
                time.sleep(TICK_SECONDS)
        finally:
            (self.folder / "ready.json").unlink(missing_ok=True)
            self._stop()

    def tell_to_stop(self) -> None:
        """Ask `run` to end, from a signal handler."""
        self.told_to_stop = True

    def _is_unused(self) -> bool:
        """Tell whether there has been no user for the grace period; then no new one gets in until this process ends."""
        fd = try_lock(self.folder / "users.lock", fcntl.LOCK_EX)
        if fd is None:
            self.idle_since = None
            return False
        now = time.monotonic()
        if self.idle_since is None:
            self.idle_since = now
        if now - self.idle_since >= GRACE_SECONDS:
            self.users_lock = fd
            return True
        drop_lock(fd)
        return False

    def _start(self) -> None:
        account = self.server.account
        with (self.folder / "server.log").open("ab") as log:
            self.child = subprocess.Popen(
                self.server.command(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=self._stop_with_parent,
            )
        self._note_child(self.child.pid)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.server.answers():
            if self.child.poll() is not None:
                raise RuntimeError(f"The server ended with status {self.child.returncode}; see server.log.")
            if time.monotonic() > deadline:
                raise RuntimeError("The server does not answer; see server.log.")
            time.sleep(0.02)
        self._note_ready(self.child.pid)

    def _stop_with_parent(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(self.server.stop_signal))

    def _stop(self) -> None:
        if self.child is None or self.child.poll() is not None:
            return
        self.child.send_signal(self.server.stop_signal)
        try:
            self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def _note_child(self, pid: int) -> None:
        created = psutil.Process(pid).create_time()
        _write(self.folder / "server.json", {"pid": pid, "created": created})

    def _note_ready(self, pid: int) -> None:
        running = Running(
            socket_dir=str(self.server.socket_dir),
            pid=pid,
            data_dir=str(self.server.data_dir),
            version=self.server.version,
        )
        _write(self.folder / "ready.json", asdict(running))

    def _end_leftover(self) -> None:
        """End the server of a keeper that was killed; a pid counts only with the time its process was created."""
        try:
            note = json.loads((self.folder / "server.json").read_text())
            process = psutil.Process(note["pid"])
            if abs(process.create_time() - note["created"]) > 1.0:
                return
            process.send_signal(self.server.stop_signal)
            process.wait(STOP_SECONDS)
        except (FileNotFoundError, ValueError, KeyError, psutil.NoSuchProcess):
            return
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _become_the_keeper(folder: Path) -> bool:
    # Users look at this lock for an instant, so one refusal says nothing yet.
    deadline = time.monotonic() + LOCK_SECONDS
    while try_lock(folder / "keeper.lock", fcntl.LOCK_EX) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _write(path: Path, content: dict[str, object]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def main() -> int:
    """Run the keeper that the command line names; end at once where another one is at work."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    service, state_dir = sys.argv[1], Path(sys.argv[2])
    folder = home(state_dir, service)
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if not _become_the_keeper(folder):
        return 1
    try:
        keeper = Keeper(server_for(service, state_dir), folder)
        signal.signal(signal.SIGTERM, lambda *_: keeper.tell_to_stop())
        keeper.run()
    except RuntimeError as error:
        logger.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
