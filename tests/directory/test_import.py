"""``import_customer_profiles``: everything arrives, bad rows are named, and running again is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from django.core.management import CommandError, call_command

from directory import client
from directory.models import CustomerProfile, Partition
from directory.partitioning import email_partition
from tests.directory.conftest import held_partition

HEADER = "emailAddress,fullName,companyName,customerTier"

pytestmark = pytest.mark.django_db(transaction=True)

WriteFile = Callable[[Iterable[str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_rows(rows: Iterable[str]) -> Path:
        path = tmp_path / "customers.csv"
        path.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
        return path

    return write_rows


def run(path: Path, **options: object) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("import_customer_profiles", str(path), stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


@pytest.mark.usefixtures("directory")
class TestImport:
    """Into a started directory."""

    def test_every_row_can_be_read_afterwards(self, write: WriteFile) -> None:
        path = write(f"User{n}@Example.com,Name {n},Company,gold" for n in range(300))
        out, err = run(path, writers=4)
        assert "300 rows saved, 0 skipped" in out
        assert err == ""
        for n in range(0, 300, 50):
            profile = client.find_profile(f"user{n}@example.com")
            assert profile is not None
            assert profile.full_name == f"Name {n}"
        stored = list(CustomerProfile.objects.all())
        assert len(stored) == 300
        assert all(profile.partition == email_partition(profile.email).instance for profile in stored)

    def test_of_two_rows_of_one_address_the_last_wins(self, write: WriteFile) -> None:
        path = write(f"{'Same' if n % 2 else ' same'}@example.com,Name {n},Company,gold" for n in range(50))
        run(path, writers=8)
        profile = client.find_profile("same@example.com")
        assert profile is not None
        assert profile.full_name == "Name 49"

    def test_running_again_changes_nothing(self, write: WriteFile) -> None:
        path = write(f"user{n}@example.com,Name,Company,gold" for n in range(20))
        run(path)
        run(path)
        assert sum(Partition.objects.values_list("profiles", flat=True)) == 20

    def test_a_bad_row_is_named_and_nothing_is_saved(self, write: WriteFile) -> None:
        path = write(["a@b.c,Ann,C,gold", "ü@b.c,Ann,C,gold", "b@b.c,,C,gold"])
        err = StringIO()
        with pytest.raises(CommandError, match="2 bad rows: nothing was saved"):
            call_command("import_customer_profiles", str(path), stderr=err)
        assert [line.partition(":")[0] for line in err.getvalue().splitlines()] == ["line 3", "line 4"]
        assert not Partition.objects.exists()

    def test_bad_rows_are_skipped_on_request(self, write: WriteFile) -> None:
        path = write(["a@b.c,Ann,C,gold", "ü@b.c,Ann,C,gold", "b@b.c,Bob,C,gold"])
        out, err = run(path, keep_going=True)
        assert "2 rows saved, 1 skipped" in out
        assert err.startswith("line 3: emailAddress")
        assert client.find_profile("b@b.c") is not None

    def test_a_partition_held_by_another_is_tried_until_it_is_free(self, write: WriteFile) -> None:
        path = write(["alice@example.com,Alice,C,gold"])
        with held_partition("alice@example.com"):
            importer = Thread(target=run, args=(path,))
            importer.start()
            importer.join(0.3)
            assert importer.is_alive(), "the import must wait for the holder"
            assert client.find_profile("alice@example.com") is None
        importer.join(30)
        assert client.find_profile("alice@example.com") is not None


def test_a_wrong_header_is_refused(write: WriteFile, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("email,name\na@b.c,Ann\n", encoding="utf-8")
    with pytest.raises(CommandError, match="must name the columns emailAddress, fullName"):
        run(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.csv"):
        run(tmp_path / "none.csv")


@pytest.mark.parametrize("writers", [0, -1])
def test_there_must_be_a_writer(write: WriteFile, writers: int) -> None:
    with pytest.raises(CommandError, match="at least 1"):
        run(write([]), writers=writers)


def test_before_the_start_the_import_says_so(write: WriteFile) -> None:
    with pytest.raises(CommandError, match="safe"):
        run(write(f"user{n}@example.com,Name,Company,gold" for n in range(500)))
