"""Django's system checks say at start-up what registration and the settings refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project_settings
from django.core.checks import run_checks
from pytest_django import Settings

from dexflows import PersistenceSchema, Stream
from dexflows.registry import registry
from tests.language.flows import Base
from tests.workers import PROJECT

FLOWS = """
from dexflows import Flow, StepList, register

class TwinFlow(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList.empty()

register(TwinFlow())
register(TwinFlow())
"""
SETTINGS = """
from config.settings import *
INSTALLED_APPS = [*INSTALLED_APPS, "twins"]
"""


def found() -> set[str | None]:
    return {message.id for message in run_checks() if str(message.id).startswith("dexflows.")}


def manage(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Django in a process of its own, in a project that has one more app."""
    own = {"PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}", "DJANGO_SETTINGS_MODULE": "twin_settings"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def project_with_twins(tmp_path: Path) -> Path:
    """Give the folder of an app that registers two Flows of one type, and of settings that install it."""
    (tmp_path / "twins").mkdir()
    (tmp_path / "twins" / "__init__.py").touch()
    (tmp_path / "twins" / "flows.py").write_text(FLOWS)
    (tmp_path / "twin_settings.py").write_text(SETTINGS)
    return tmp_path


def test_the_project_passes() -> None:
    assert found() == set()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"LEASE_SECOND": 5}, "dexflows.E001"),
        ({"LEASE_SECONDS": 0}, "dexflows.E001"),
        ({"LEASE_SECONDS": 4, "HEARTBEAT_SECONDS": 2}, "dexflows.E001"),
        ({"DEFAULT_QUEUE": ""}, "dexflows.E001"),
        ({"DATABASE": "elsewhere"}, "dexflows.E002"),
        ({"STREAMS_URL": "amqp://guest@rabbit//"}, "dexflows.E001"),
        ({"STREAMS_URL": ""}, "dexflows.E001"),
        ({"STREAMS_EXPIRE_SECONDS": 0}, "dexflows.E001"),
    ],
)
def test_settings_that_cannot_work_are_reported(settings: Settings, given: dict[str, Any], expected: str) -> None:
    settings.DEXFLOWS = given
    assert found() == {expected}


def test_another_isolation_level_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(project_settings.DATABASES["default"]["OPTIONS"], "isolation_level", "SERIALIZABLE")
    assert found() == {"dexflows.E003"}


def test_a_wrong_flow_fails_the_check_and_ends_every_other_process(project_with_twins: Path) -> None:
    checked = manage(project_with_twins, "manage.py", "check")
    assert checked.returncode == 1
    assert "dexflows.E010" in checked.stderr
    assert "TwinFlow" in checked.stderr
    served = manage(project_with_twins, "-c", "import config.wsgi")
    assert served.returncode == 1
    assert "FlowDefinitionError" in served.stderr
    assert "TwinFlow" in served.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://broker/0", set()),
        ("amqp://guest@rabbit//", {"dexflows.W001"}),
        ("redis://broker/0?colour=red", {"dexflows.E005"}),
        ("redis://broker:x/0", {"dexflows.E005"}),
    ],
)
def test_streams_without_a_redis_are_reported(settings: Settings, url: str, expected: set[str]) -> None:
    settings.CELERY_BROKER_URL = url
    assert found() == set()
    with registry.isolated():
        registry.register(Base(schema=PersistenceSchema.of(Stream("progress", str))))
        assert found() == expected
