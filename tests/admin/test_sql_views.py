"""The views `dexflows_v1_*`: what they show, and that nothing can be written through them."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from tests.admin.rows import make_busy_run

pytestmark = pytest.mark.django_db

VIEWS = ("run", "step", "attribute", "event", "lock_holder", "lock_waiter")


def run_sql(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {}",
        "UPDATE {} SET run_id = gen_random_uuid()",
        "INSERT INTO {} (run_id) VALUES (gen_random_uuid())",
    ],
)
def test_nothing_is_written_through_a_view(view: str, statement: str) -> None:
    make_busy_run()
    with pytest.raises(DatabaseError, match=r"cannot (delete from|update|insert into) view"):
        run_sql(statement.format(f"dexflows_v1_{view}"))


@pytest.mark.parametrize("view", VIEWS)
def test_every_row_of_a_run_is_shown_once(view: str) -> None:
    make_busy_run(size=2)
    tables = {"step": "step_execution", "lock_holder": "lock_hold", "lock_waiter": "lock_wait"}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM dexflows_v1_{view}")
        shown = cursor.fetchone()
        cursor.execute(f"SELECT count(*) FROM dexflows_{tables.get(view, view)}")
        assert shown == cursor.fetchone()


def test_the_views_do_not_show_the_tokens_that_settle_attempts() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.columns "
            "WHERE table_name LIKE 'dexflows\\_v1\\_%%' AND column_name = 'token'"
        )
        assert cursor.fetchall() == []
