"""Putting another clock in the place of `dexflows_now()`, and back.

The virtual clock is a setting of the session, set and replaced within one transaction, with which it goes. The shared
clock is what the database's clock says and a shift from a table, and is seen by every session of the database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connections, transaction

from dexflows import sql
from dexflows.conf import conf

STAND_STILL = """
SELECT set_config('dexflows.clock', clock_timestamp()::text, true), set_config('dexflows.done', '-infinity', true);
CREATE OR REPLACE FUNCTION dexflows_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT current_setting('dexflows.clock')::timestamptz
$$
"""
SHARE = """
DROP TABLE IF EXISTS dexflows_test_clock;
CREATE TABLE dexflows_test_clock AS SELECT interval '0' AS shift;
CREATE OR REPLACE FUNCTION dexflows_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp() + shift FROM dexflows_test_clock
$$;
COMMENT ON FUNCTION dexflows_now() IS NULL
"""
PUT_FORWARD = """
UPDATE dexflows_test_clock SET shift = shift + make_interval(secs => %s);
UPDATE dexflows_step_execution SET lease_until = lease_until + make_interval(secs => %s),
    method_deadline = method_deadline + make_interval(secs => %s) WHERE state = 'RUNNING'
"""


def now() -> datetime:
    """What the clock in force says."""
    at: datetime = sql.call(conf().database, "SELECT dexflows_now()", ())[0][0]
    return at


def stand_still() -> None:
    """Let time stand still in the current transaction, from now until its end."""
    _execute(STAND_STILL)


@contextmanager
def shared() -> Iterator[None]:
    """Within the block `put_forward` moves the clock of the whole database.

    The mark by which `sql.install` knows this release's functions is off meanwhile: should the process be killed
    here, the next `migrate` puts the clock back.
    """
    using = conf().database
    ((mark,),) = sql.call(using, "SELECT obj_description('dexflows_now()'::regprocedure, 'pg_proc')", ())
    with transaction.atomic(using=using):
        _execute(SHARE)
    try:
        yield
    finally:
        with transaction.atomic(using=using):
            _execute(sql.text("now"))
            _execute("DROP TABLE dexflows_test_clock")
            _execute("COMMENT ON FUNCTION dexflows_now() IS %s", mark)


def put_forward(seconds: float) -> None:
    """Move the shared clock. An attempt that runs does not notice: its lease and its timeout move along."""
    with transaction.atomic(using=conf().database):
        _execute(PUT_FORWARD, seconds, seconds, seconds)


def _execute(statements: str, *arguments: Any) -> None:
    with connections[conf().database].cursor() as cursor:
        cursor.execute(statements, arguments or None)
