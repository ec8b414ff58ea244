"""Embedded servers are shared by processes, and end with the last of them, however it ends."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from config.embedded import POSTGRES, VALKEY
from config.embedded.places import home
from tests.embedded.users import User, keeper_pid, running, wait_until_stopped


@pytest.mark.parametrize("service", [POSTGRES, VALKEY])
def test_processes_that_start_at_once_share_one_server_and_the_last_one_ends_it(state_dir: Path, service: str) -> None:
    users = [User(state_dir, service=service) for _ in range(4)]
    assert len({user.said()[0] for user in users}) == 1
    server = running(state_dir, service)
    for user in users[:-1]:
        user.end()
    assert psutil.pid_exists(server.pid)
    users[-1].end()
    wait_until_stopped(state_dir, server, service)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_user_that_is_killed_leaves_no_server_and_its_data_is_kept(state_dir: Path, number: signal.Signals) -> None:
    user = User(state_dir, "CREATE TABLE kept (answer int)", "INSERT INTO kept VALUES (42)")
    user.said()
    server = running(state_dir)
    user.end_by(number)
    wait_until_stopped(state_dir, server)
    after = User(state_dir, "SELECT answer FROM kept")
    assert after.said()[1] == "42"
    after.end()


def test_a_user_that_comes_while_the_server_stops_gets_one(state_dir: Path) -> None:
    first = User(state_dir)
    first.said()
    server = running(state_dir)
    os.kill(keeper_pid(server), signal.SIGTERM)
    psutil.wait_procs([psutil.Process(server.pid)], timeout=20)
    second = User(state_dir, "SELECT 7")
    assert second.said()[1] == "7"
    first.end()
    second.end()


def test_a_killed_keeper_is_replaced_and_its_server_does_not_stay(state_dir: Path) -> None:
    first = User(state_dir, "CREATE TABLE kept (answer int)", "INSERT INTO kept VALUES (42)")
    first.said()
    orphan = running(state_dir)
    os.kill(keeper_pid(orphan), signal.SIGKILL)
    second = User(state_dir, "SELECT answer FROM kept")
    assert second.said()[1] == "42"
    assert running(state_dir).pid != orphan.pid
    assert not psutil.pid_exists(orphan.pid)
    first.end()
    second.end()


def test_a_server_that_dies_is_started_again_for_its_users(state_dir: Path) -> None:
    user = User(state_dir, service=VALKEY)
    user.said()
    server = running(state_dir, VALKEY)
    process = psutil.Process(server.pid)
    process.kill()
    psutil.wait_procs([process], timeout=20)
    other = User(state_dir, service=VALKEY)
    other.said()
    assert running(state_dir, VALKEY).pid != server.pid
    user.end()
    other.end()


def test_stale_pid_files_and_sockets_are_survived(state_dir: Path) -> None:
    first = User(state_dir, "SELECT 1")
    first.said()
    server = running(state_dir)
    first.end()
    wait_until_stopped(state_dir, server)
    # As after a power cut, where another process has got the pid since.
    data = Path(server.data_dir)
    (data / "postmaster.pid").write_text(f"{os.getppid()}\n{data}\n1\n5432\n{server.socket_dir}\n\n  1 1\nready\n")
    os.chown(data / "postmaster.pid", data.stat().st_uid, data.stat().st_gid)
    (Path(server.socket_dir) / ".s.PGSQL.5432.lock").write_text(f"{os.getppid()}\n{data}\n1\n5432\n")
    (Path(server.socket_dir) / ".s.PGSQL.5432").touch()
    (home(state_dir, POSTGRES) / "ready.json").write_text('{"half a')
    after = User(state_dir, "SELECT 2")
    assert after.said()[1] == "2"
    after.end()


def test_two_checkouts_have_servers_of_their_own(state_dir: Path, another_state_dir: Path) -> None:
    folders = (state_dir, another_state_dir)
    users = [User(folder, "CREATE TABLE mine ()", "SELECT 3") for folder in folders]
    assert {user.said()[1] for user in users} == {"3"}
    servers = [running(folder) for folder in folders]
    assert servers[0].pid != servers[1].pid
    for user in users:
        user.end()
    for folder, server in zip(folders, servers, strict=True):
        wait_until_stopped(folder, server)
