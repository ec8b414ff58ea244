"""``manage.py import_customer_profiles FILE.csv``: saves the customers of a CSV file in the running directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dexflows import DexflowsError
from directory.customer_files import BadRow, CustomerFileError, CustomerRow, read_customers
from directory.importing import Import
from directory.schema import PartitionSchemaMismatchError


class Command(BaseCommand):
    help = (
        "Save the customers of a CSV file with the columns emailAddress, fullName, companyName and customerTier. "
        "Where an address comes twice, the last row wins. Safe to run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.csv")
        parser.add_argument("--writers", type=int, default=8, help="how many rows to save at the same time (default 8)")
        parser.add_argument("--keep-going", action="store_true", help="skip bad rows instead of saving nothing")

    def handle(self, *args: Any, file: Path, writers: int, keep_going: bool, **options: Any) -> None:
        if writers < 1:
            raise CommandError("--writers must be at least 1.")
        try:
            good, bad = self._inspect(file)
        except OSError as error:
            raise CommandError(f"{file} cannot be read ({error.strerror}): nothing was saved.") from error
        except CustomerFileError as error:
            raise CommandError(f"{error} Nothing was saved.") from error
        if bad and not keep_going:
            raise CommandError(f"{bad} bad rows: nothing was saved. Use --keep-going to skip them.")
        try:
            running = self._import(file, good, writers, keep_going)
        except (OSError, CustomerFileError, PartitionSchemaMismatchError, DexflowsError) as error:
            raise CommandError(f"{error} Rows saved so far stay; running the command again is safe.") from error
        except DatabaseError as error:
            raise CommandError("The database failed. Rows saved so far stay; run the command again.") from error
        self._conclude(running, bad + len(running.refused), keep_going)

    def _inspect(self, file: Path) -> tuple[int, int]:
        """Count the good and the bad rows before anything is written, and report each bad one."""
        good = bad = 0
        for row in read_customers(file):
            if isinstance(row, BadRow):
                bad += 1
                self._report(row)
            else:
                good += 1
        return good, bad

    def _import(self, file: Path, total: int, writers: int, keep_going: bool) -> Import:
        console = Console(stderr=True)
        columns = (TextColumn("Saving profiles"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            bar = progress.add_task("", total=total)
            running = Import(writers=writers, keep_going=keep_going, on_row=lambda: progress.advance(bar))
            running.run(_customers(file))
        return running

    def _conclude(self, running: Import, skipped: int, keep_going: bool) -> None:
        for row in sorted(running.refused, key=lambda row: row.line):
            self._report(row)
        if running.refused and not keep_going:
            raise CommandError(f"Stopped at a refused row; {running.saved} rows were saved. Running again is safe.")
        self.stdout.write(f"{running.saved} rows saved, {skipped} skipped.")

    def _report(self, row: BadRow) -> None:
        self.stderr.write(f"line {row.line}: {row.fault}")


def _customers(file: Path) -> Iterator[CustomerRow]:
    return (row for row in read_customers(file) if isinstance(row, CustomerRow))
