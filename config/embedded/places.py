"""Where the files of an embedded server lie."""

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

POSTGRES = "postgres"
VALKEY = "valkey"

# A Unix socket's path has at most 103 bytes on every system; this leaves room for the longest name, `.s.PGSQL.5432`.
LONGEST_SOCKET_DIR = 88
ROOTS_PLACE = Path("/var/lib/dexflows")


@dataclass(frozen=True, kw_only=True)
class Account:
    """The user that a server runs as when root starts it."""

    uid: int
    gid: int


def home(state_dir: Path, service: str) -> Path:
    """Give the folder of the locks, logs and notes of a service."""
    return state_dir.resolve() / service


def socket_dir(state_dir: Path, service: str) -> Path:
    """Give the folder of a service's Unix socket: in the checkout, or in /tmp where that is too long for one."""
    inside = home(state_dir, service) / "socket"
    if len(os.fsencode(inside)) <= LONGEST_SOCKET_DIR:
        return inside
    return Path("/tmp") / f"dexflows-{os.geteuid()}-{_digest(inside)}"  # noqa: S108 - made private by `make_private`


def place(state_dir: Path, service: str, account: Account | None) -> Path:
    """Give the folder of a service's data and socket that the server's account can enter."""
    inside = home(state_dir, service)
    if account is None or can_enter(inside, account):
        return inside
    elsewhere = ROOTS_PLACE / _digest(inside)
    elsewhere.mkdir(mode=0o755, parents=True, exist_ok=True)
    return elsewhere


def can_enter(folder: Path, account: Account) -> bool:
    """Tell whether the account can enter the folder, by trying it as that account."""
    command = ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]
    tried = subprocess.run(
        command, user=account.uid, group=account.gid, extra_groups=[], cwd="/", stderr=subprocess.DEVNULL, check=False
    )
    return tried.returncode == 0


def account_for(data_dir: Path | None) -> Account | None:
    """Choose whom PostgreSQL runs as: ourselves, or for root the owner of the data, `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return None
    if data_dir and data_dir.exists() and (owner := data_dir.stat()).st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody. Set DATABASE_URL.")


def make_private(folder: Path, account: Account | None = None) -> None:
    """Make a folder that only its owner can enter, and refuse one that somebody else has made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = account.uid if account else os.geteuid()
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid not in {owner, os.geteuid()}:
        raise RuntimeError(f"{folder} belongs to somebody else. Remove it, or set DATABASE_URL and BROKER_URL.")
    folder.chmod(0o700)
    if account:
        os.chown(folder, account.uid, account.gid)


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
