"""The settings as a production machine has them."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent


def manage(tmp_path: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    own = {"DEXFLOWS_STATE_DIR": str(tmp_path / "state"), "DEXFLOWS_PROFILE": "production", **variables}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_deployment_check_is_clean_with_the_documented_variables(tmp_path: Path) -> None:
    done = manage(
        tmp_path,
        "check",
        "--deploy",
        "--fail-level=WARNING",
        SECRET_KEY=secrets.token_urlsafe(64),
        ALLOWED_HOSTS="flows.example.com",
        DATABASE_URL="postgres://user:word@127.0.0.1:1/name",
        BROKER_URL="redis://127.0.0.1:1/0",
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "state").exists()


def test_the_local_supervisor_refuses_to_run_as_production(tmp_path: Path) -> None:
    done = manage(tmp_path, "devserver")
    assert done.returncode != 0
    assert "DEXFLOWS_PROFILE=local" in done.stderr


def test_every_variable_that_is_read_is_documented() -> None:
    calls = re.compile(r'(?:environ\.(?:text|flag|number|words)\(\s*|SOURCE_VARIABLE = )"([A-Z_]+)"')
    read = {name for source in (PROJECT / "config").rglob("*.py") for name in calls.findall(source.read_text())}
    documented = (PROJECT / "docs" / "configuration.md").read_text()
    assert read != set()
    assert {name for name in read if f"`{name}`" not in documented} == set()


def test_the_local_key_is_made_once(tmp_path: Path) -> None:
    code = "from django.conf import settings; print(settings.SECRET_KEY)"
    said = [manage(tmp_path, "shell", "--no-imports", "-c", code).stdout for _ in range(2)]
    assert said[0] == said[1] != ""
    assert (tmp_path / "state" / "secret-key").stat().st_mode & 0o077 == 0
