"""What the README shows works as it is written: its Python, its commands, their answers, its paths and targets."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import isolate_apps

from dexflows import Client, FlowNotFoundError
from dexflows.engine import doorbell, executor
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import InlineWorker
from dexflows.registry import registry
from dexflows.testing import VirtualFlows
from directory import schema
from directory.models import CustomerProfile
from tests.web import WebServer
from tests.workers import PROJECT

README = (PROJECT / "README.md").read_text()
MODELS = """
from django.db import models

class Order(models.Model):
    class Meta:
        app_label = "shop"

class Payment(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    class Meta:
        app_label = "shop"
"""


def blocks(language: str) -> list[str]:
    """The README's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


class OneAfterAnother:
    """A doorbell whose Steps run when they are asked to."""

    def __init__(self) -> None:
        self.rung: list[StepKey] = []

    def ring(self, steps: Any) -> None:
        self.rung.extend(steps)

    def run_all(self) -> None:
        while self.rung:
            executor.run(self.rung.pop(0), InlineWorker())


@pytest.fixture
def bell(transactional_db: None) -> Iterator[OneAfterAnother]:
    bell = OneAfterAnother()
    before = doorbell.install(bell)
    yield bell
    doorbell.install(before)


@pytest.fixture
def shop(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give the README's module `shop.flows`, with tables for its models."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(MODELS)
    (package / "flows.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    with registry.isolated(), isolate_apps(), tables_of(importlib.import_module("shop.models")):
        yield importlib.import_module("shop.flows")
    for name in ("shop", "shop.models", "shop.flows"):
        sys.modules.pop(name, None)


@contextmanager
def tables_of(models: ModuleType) -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.create_model(models.Order)
        editor.create_model(models.Payment)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(models.Payment)
            editor.delete_model(models.Order)


def statements(shop: ModuleType) -> tuple[Callable[[], None], Callable[[], Any], dict[str, Any]]:
    """The README's second block: all of it but the last statement, that one's value, and the names it uses."""
    *first, last = ast.parse(blocks("python")[1]).body
    assert isinstance(last, ast.Expr)
    names = {**vars(shop), "Order": sys.modules["shop.models"].Order, "transaction": transaction}
    code = compile(ast.Module(first, []), "README.md", "exec")
    end = compile(ast.Expression(last.value), "README.md", "eval")
    return lambda: exec(code, names), lambda: eval(end, names), names  # noqa: S102, S307 - it is our own README


def test_the_flow_runs_from_the_first_call_to_its_end(shop: ModuleType, bell: OneAfterAnother) -> None:
    call, end, names = statements(shop)
    call()
    flow_id = f"order-{names['order'].pk}"
    assert Client().get_attribute(flow_id, shop.order_flow.status) == "on hold"
    bell.run_all()
    assert end() == names["order"].pk
    assert [payment.order_id for payment in sys.modules["shop.models"].Payment.objects.all()] == [names["order"].pk]
    assert Client().get_attribute(flow_id, shop.order_flow.status) == "shipped"


def test_the_flow_is_rolled_back_with_the_order(shop: ModuleType, bell: OneAfterAnother) -> None:
    call, _end, names = statements(shop)
    with transaction.atomic():
        call()
        transaction.set_rollback(True)
    with pytest.raises(FlowNotFoundError):
        Client().describe_flow(f"order-{names['order'].pk}")
    assert bell.rung == []


def test_the_test_is_green(shop: ModuleType, flows: VirtualFlows) -> None:
    models = sys.modules["shop.models"]
    names = {**vars(shop), "Order": models.Order, "Payment": models.Payment}
    exec(blocks("python")[2], names)  # noqa: S102 - it is our own README
    assert blocks("python")[2].count("\n") == 8
    names["test_an_order_is_shipped_after_a_day"](flows)


@pytest.fixture
def server(transactional_db: None) -> Iterator[WebServer]:
    schema.forget()
    server = WebServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()
        schema.forget()


def commands() -> list[tuple[str, str]]:
    """The commands of the README's console blocks, each with what is printed below it."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", "".join(blocks("console")), flags=re.M)[1:]:
        lines = part.splitlines()
        end = next(end for end in range(1, len(lines) + 1) if is_whole("\n".join(lines[:end])))
        found.append(("\n".join(lines[:end]), "\n".join(lines[end:])))
    return found


def is_whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def printed(text: str) -> str:
    """An answer, whatever the ID of the run."""
    return re.sub(r'"runID":"[^"]+"', '"runID":"…"', text.strip())


def test_the_curl_lines_answer_what_is_printed_below_them(server: WebServer) -> None:
    base, *calls = [each for each in commands() if each[0].startswith(("BASE=", "curl "))]
    here = base[0].replace("http://127.0.0.1:8000", server.url)
    assert len(calls) == 3
    assert here != base[0]
    answers = []
    for command, _ in calls:
        script = f"{here}\n{command}"
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60, check=True)
        answers.append(printed(done.stdout))
    assert answers == [printed(answer) for _, answer in calls]
    assert all(json.loads(answer) for answer in answers)


@pytest.mark.django_db(transaction=True)
def test_the_import_takes_a_file_with_a_header_row(tmp_path: Path) -> None:
    (line,) = [shlex.split(command) for command, _ in commands() if "manage.py" in command]
    python, manage, name, file, *options = line
    assert (python, (PROJECT / manage).exists(), file) == (".venv/bin/python", True, "customers.csv")
    customers = tmp_path / file
    customers.write_text("emailAddress,fullName,companyName,customerTier\ngrace@example.com,Grace Hopper,Navy,gold\n")
    schema.forget()
    call_command("start_customer_directory", verbosity=0)
    call_command(name, str(customers), *options, verbosity=0)
    assert [profile.full_name for profile in CustomerProfile.objects.all()] == ["Grace Hopper"]
    schema.forget()


def test_every_link_and_make_target_exists() -> None:
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    targets = re.findall(r"\bmake ([a-z]+)\b(?=`|  )", README)
    assert "docs/pictures/run.png" in linked
    assert "run" in targets
    assert [path for path in linked if not (PROJECT / path).exists()] == []
    makefile = (PROJECT / "Makefile").read_text()
    assert [target for target in targets if not re.search(rf"^{target}:.*## ", makefile, re.M)] == []


def test_the_code_begins_on_the_first_screen() -> None:
    assert README[: README.index("```python")].count("\n") < 30
