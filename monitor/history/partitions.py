"""The day partitions of the minutes: made ahead, dropped behind. Rerunnable, and safe beside a running crawl.

Rows of a day without a partition go to the DEFAULT one; when the partition is made at last, they move there. Nothing is dropped
where no crawls bear the clock out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from monitor.history.minutes import midnight
from monitor.history.models import RolledUp
from monitor.models import Crawl

TABLES = ("monitor_peersample", "monitor_modelminute")
AHEAD = 3
"""Days: three missed nights are no loss."""
KEPT = 7
"""Days of minutes: 0.65 GB a day at 500 servers x 10 models. What is older lives on as days and hours."""


def maintain(now: datetime) -> None:
    today, believed = now.astimezone(UTC).date(), Crawl.objects.all().bear_out(now)
    for table in TABLES:
        existing = days_of(table)
        wanted = {today + timedelta(days=ahead) for ahead in range(AHEAD + 1)}
        for day in sorted(wanted - existing):
            with _locked("SHARE ROW EXCLUSIVE"):
                _create(table, day)
        for day in sorted(existing) if believed else ():
            if day < today - timedelta(days=KEPT) and _rolled_up(day):
                with _locked("ACCESS EXCLUSIVE") as cursor:
                    cursor.execute(f"DROP TABLE IF EXISTS {_name(table, day)}")
    if believed:
        _forget_strays(today)


@contextlib.contextmanager
def _locked(mode: str) -> Iterator[CursorWrapper]:
    """In the order in which a crawl locks them: a partition brings or drops foreign keys to the first two tables, and
    whoever locked its own rows first would wait for the crawl that waits for it. Rather try again a minute later."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute(f"LOCK TABLE monitor_watchedmodel, monitor_peer IN {mode} MODE")
        yield cursor


def days_of(table: str) -> set[date]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table])
        names = [name for (name,) in cursor.fetchall()]
    found = [re.fullmatch(rf"{table}_(\d{{8}})", name) for name in names]
    return {datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match}


def strays() -> int:
    """Rows for which no partition stood ready: more than none means that `maintain` did not run."""
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT count(*) FROM {table}_default" for table in TABLES))  # noqa: S608
        return sum(count for (count,) in cursor.fetchall())


def _create(table: str, day: date) -> None:
    name, bounds = _name(table, day), [midnight(day), midnight(day + timedelta(days=1))]
    with connection.cursor() as cursor:
        # Before it is attached: Postgres refuses a partition whose rows lie in the DEFAULT one.
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone() != (None,):
            return  # Another worker was faster.
        cursor.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
        cursor.execute(f"LOCK TABLE {table}_default IN EXCLUSIVE MODE")
        cursor.execute(
            f"WITH moved AS (DELETE FROM {table}_default WHERE ts >= %s AND ts < %s RETURNING *)"  # noqa: S608
            f" INSERT INTO {name} SELECT * FROM moved",
            bounds,
        )
        first, last = (f"{bound:%Y-%m-%d} 00:00:00+00" for bound in bounds)
        cursor.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{last}')")


def _forget_strays(today: date) -> None:
    """Of days for which no partition will be made any more."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(
                f"DELETE FROM {table}_default WHERE ts < %s AND ts < (SELECT until FROM monitor_rolledup)",  # noqa: S608
                [midnight(today - timedelta(days=KEPT))],
            )


def _rolled_up(day: date) -> bool:
    return RolledUp.objects.filter(until__gte=midnight(day + timedelta(days=1))).exists()


def _name(table: str, day: date) -> str:
    return f"{table}_{day:%Y%m%d}"
