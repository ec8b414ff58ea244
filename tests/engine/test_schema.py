"""The tables as PostgreSQL has them: distributable by run, without `json`, with the functions of the files."""

import re

import pytest

from dexflows import sql
from tests.engine.kit import rows, value


def tables() -> list[str]:
    found = rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'dexflows\\_%%' ORDER BY 1")
    return [name for (name,) in found]


def test_every_unique_key_contains_the_run_or_the_flow_id() -> None:
    keys = rows(
        "SELECT c.relname, i.relname, array_agg(a.attname::text) FROM pg_index x "
        "JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (x.indkey) "
        "WHERE x.indisunique AND c.relname LIKE 'dexflows\\_%%' GROUP BY 1, 2"
    )
    assert {table for table, _, _ in keys} == set(tables())
    for table, index, columns in keys:
        assert {"run_id", "flow_id"} & set(columns), f"{index} of {table}"


def test_no_column_is_of_type_json_and_every_time_has_a_zone() -> None:
    """JSN-06."""
    columns = rows(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_name LIKE 'dexflows\\_%%'"
    )
    assert len(columns) > 40
    assert [each for each in columns if each[2] in ("json", "timestamp without time zone")] == []


def test_no_foreign_key_ties_the_tables_together() -> None:
    assert (
        value(
            "SELECT count(*) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid "
            "WHERE k.contype = 'f' AND c.relname LIKE 'dexflows\\_%%'"
        )
        == 0
    )


@pytest.mark.parametrize("name", sql.names())
def test_the_installed_function_is_the_one_in_its_file(name: str) -> None:
    text = sql.text(name)
    body = re.search(r"AS \$\$(.*)\$\$", text, re.DOTALL)
    assert body is not None
    assert text.startswith("-- "), "a header says what it guarantees"
    assert f"CREATE OR REPLACE FUNCTION dexflows_{name}(" in text
    found = rows("SELECT prosrc FROM pg_proc WHERE proname = %s", f"dexflows_{name}")
    assert found == [(body.group(1),)]


OF_THE_TABLE = "dexflows_step_is_legal"
"""A CHECK calls it, so it is made with the table, by a migration."""


def test_no_function_is_installed_without_a_file() -> None:
    found = rows("SELECT proname FROM pg_proc WHERE proname LIKE 'dexflows\\_%%'")
    assert {name for (name,) in found} == {f"dexflows_{name}" for name in sql.names()} | {OF_THE_TABLE}
