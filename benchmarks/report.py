"""Rows of numbers: medians, ratios and budgets, as a table and as JSON."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

PACKAGES = ("django", "djangorestframework", "celery", "kombu", "redis", "psycopg", "dbos", "gunicorn", "msgspec")
US = "dexflows"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What our median may be, as a multiple of a peer's: at least `ratio` where more is better, else at most."""

    peer: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing measured: a number per round for each contender."""

    name: str
    unit: str
    more_is_better: bool
    budgets: Sequence[Budget]
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, value: float) -> None:
        """Keep one round's number."""
        self.rounds.setdefault(contender, []).append(value)

    def median(self, contender: str) -> float | None:
        """The middle of the rounds, or None for what was not measured."""
        return median(self.rounds[contender]) if contender in self.rounds else None

    def verdicts(self) -> list[dict[str, object]]:
        """Each budget with the ratio of medians that was measured."""
        found = []
        for budget in self.budgets:
            ours, theirs = self.median(US), self.median(budget.peer)
            if ours is None or theirs is None:
                continue
            ratio = ours / theirs
            met = ratio >= budget.ratio if self.more_is_better else ratio <= budget.ratio
            found.append({"beside": budget.peer, "ratio": round(ratio, 3), "budget": budget.ratio, "met": met})
        return found

    def as_json(self) -> dict[str, object]:
        """Everything known about the row."""
        return {
            "row": self.name,
            "unit": self.unit,
            "rounds": {name: [round(value, 3) for value in values] for name, values in self.rounds.items()},
            "medians": {name: round(median(values), 3) for name, values in self.rounds.items()},
            "budgets": self.verdicts(),
        }


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def print_table(rows: Sequence[Row]) -> None:
    """One line for each contender, ours first, with the budgets beside it."""
    table = Table(title="Medians of the rounds; the budget is for the ratio of dexflows to the peer")
    for heading, justify in (("row", "left"), ("contender", "left"), ("median", "right"), ("rounds", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("ratio", justify="right")
    table.add_column("budget")
    for row in rows:
        _add_lines(table, row)
        table.add_section()
    Console(width=None if Console().is_terminal else 140).print(table)


def _add_lines(table: Table, row: Row) -> None:
    verdicts = {verdict["beside"]: verdict for verdict in row.verdicts()}
    sign = "≥" if row.more_is_better else "≤"
    for name, values in row.rounds.items():
        verdict = verdicts.get(name)
        judged = f"{sign} {verdict['budget']:.2f} {'met' if verdict['met'] else 'NOT MET'}" if verdict else ""
        table.add_row(
            row.name if name == next(iter(row.rounds)) else "",
            name,
            f"{median(values):,.1f} {row.unit}",
            " ".join(f"{value:,.1f}" for value in values),
            f"{verdict['ratio']:.2f}" if verdict else "",
            judged,
        )


def write_json(path: Path, about: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Keep the numbers with what they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "rows": [row.as_json() for row in rows]}, indent=2, ensure_ascii=False) + "\n")
