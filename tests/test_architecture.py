"""What `style.md` asks of the code's shape, where no linter checks it. The import contracts are in pyproject.toml."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
VAGUE_NAMES = {"utils", "helpers", "common", "manager", "base", "misc"}
# Django looks for a database backend's classes under this name.
NAMES_THAT_OTHERS_CHOSE = {PROJECT / "config" / "embedded" / "postgresql" / "base.py"}


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((PROJECT / folder).rglob("*.py"))


def product_modules() -> Iterator[Path]:
    return (path for path in modules("dexflows", "directory", "config") if "migrations" not in path.parts)


def shown(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_no_module_is_longer_than_a_reader_can_keep_in_mind() -> None:
    long = {
        shown(path): lines for path in product_modules() if (lines := path.read_text().count("\n")) > LONGEST_MODULE
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path in product_modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long[f"{shown(path)}:{node.name}"] = length
    assert long == {}


def test_modules_are_named_after_what_they_do() -> None:
    vague = [shown(path) for path in product_modules() if path.stem in VAGUE_NAMES]
    assert [name for name in vague if PROJECT / name not in NAMES_THAT_OTHERS_CHOSE] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        shown(path)
        for path in product_modules()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_every_sql_file_says_what_it_guarantees() -> None:
    files = sorted((PROJECT / "dexflows" / "sql").glob("*.sql"))
    assert files != []
    assert [shown(path) for path in files if not path.read_text().startswith("--")] == []


# Without a browser there is nothing to test in, except in CI, where its absence is a failure.
MAY_SKIP = {PROJECT / "tests" / "browser" / "conftest.py"}


def test_nothing_is_left_for_later() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|type: ignore(?!\[)|pytest\.(?:mark\.)?(?:skip|xfail)")
    folders = ("dexflows", "directory", "config", "tests", "benchmarks", "docs")
    files = [path for path in modules(*folders) if path != Path(__file__) and path not in MAY_SKIP]
    assert [shown(path) for path in files if unfinished.search(path.read_text())] == []


def test_tests_wait_for_signals_and_never_sleep() -> None:
    tests = (path for path in modules("tests") if path.name.startswith("test_") and "faults" not in path.parts)
    assert [shown(path) for path in tests if any(map(sleeps, functions(path)))] == []


def functions(path: Path) -> Iterator[ast.AST]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def sleeps(function: ast.AST) -> bool:
    """Tell whether a test sleeps itself. A handler inside it may, to be interrupted."""
    if not getattr(function, "name", "").startswith("test_"):
        return False
    waiting: list[ast.AST] = [*ast.iter_child_nodes(function)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}:
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


@pytest.mark.parametrize("name", ["runtime", "embedded", "dev", "bench"])
def test_lock_files_carry_hashes_and_no_addresses(name: str) -> None:
    lines = (PROJECT / "requirements" / f"{name}.txt").read_text().splitlines()
    pinned = [line for line in lines if re.match(r"[a-z0-9]", line)]
    assert pinned != []
    assert [line for line in pinned if "==" not in line or not line.endswith("\\")] == []
    assert [line for line in lines if re.search(r"https?:|file:/|--(extra-)?index-url|--find-links", line)] == []


def test_every_dependency_has_a_reason() -> None:
    text = (PROJECT / "pyproject.toml").read_text()
    section = text[text.index("dependencies = [") : text.index("[tool.setuptools")]
    entries = re.findall(r'^    ".*', section, flags=re.MULTILINE)
    assert entries != []
    assert [entry for entry in entries if "# " not in entry] == []
