"""State folders for embedded servers. Only the first one is initialised the long way."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest

from config.embedded import POSTGRES, VALKEY
from tests.embedded.users import User, running, wait_until_stopped


@pytest.fixture(scope="session")
def initialised() -> Iterator[Path]:
    """Give a state folder whose PostgreSQL has been started once, and stopped."""
    folder = _new_folder()
    user = User(folder, "SELECT 1")
    user.said()
    server = running(folder)
    user.end()
    wait_until_stopped(folder, server)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def new_state_dir(initialised: Path) -> Iterator[Callable[[], Path]]:
    """Give a function that makes state folders; what runs in them ends with the test."""
    made: list[Path] = []

    def make() -> Path:
        made.append(_new_folder())
        made[-1].rmdir()
        subprocess.run(["cp", "-a", str(initialised), str(made[-1])], check=True)
        return made[-1]

    yield make
    for folder in made:
        for service in (POSTGRES, VALKEY):
            with suppress(AssertionError, psutil.NoSuchProcess):
                wait_until_stopped(folder, running(folder, service), service)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def state_dir(new_state_dir: Callable[[], Path]) -> Path:
    """Give a state folder of the test's own."""
    return new_state_dir()


@pytest.fixture
def another_state_dir(new_state_dir: Callable[[], Path]) -> Path:
    """Give a second one."""
    return new_state_dir()


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Give an empty folder that everybody can enter."""
    folder = _new_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    # Not pytest's tmp_path: that is a folder that only its owner can enter, a case with a test of its own.
    folder = Path(mkdtemp(prefix="dexflows-test-"))
    folder.chmod(0o755)
    return folder
