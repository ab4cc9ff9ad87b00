"""Minutes -> hours and days, in SQL, one hour at a time. Running it again changes nothing; a stop in between loses nothing.

An hour's bits replace the same hour's bits of the day, so that each hour costs the same, early and late in the day.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from monitor.history.models import RolledUp
from monitor.models import Crawl

HOUR = timedelta(hours=1)
LATE = timedelta(minutes=10)
"""So long into an hour the one before is done again: a crawl that began in it may have been stored after it."""

_ZERO = "repeat('0', 1440)::bit(1440)"
_MINUTE = "(extract(epoch FROM ts - %(midnight)s)::int / 60)"

_HOURS = """
INSERT INTO monitor_modelhour
  (model_id, hour, watched, broken, thin, unknown, servers_min, servers_mean, bottleneck_mean, bottleneck_believed_mean)
SELECT model_id, %(hour)s, count(*), count(*) FILTER (WHERE level = 'broken'), count(*) FILTER (WHERE level = 'thin'),
  count(*) FILTER (WHERE level = 'unknown'), min(servers), avg(servers), avg(bottleneck), avg(bottleneck_believed)
FROM (SELECT *, CASE WHEN NOT isempty(missing) THEN 'broken' WHEN NOT isempty(unread) THEN 'unknown'
                     WHEN NOT isempty(thin) THEN 'thin' END AS level
      FROM monitor_modelminute WHERE ts >= %(hour)s AND ts < %(next)s) AS minute
GROUP BY model_id
ON CONFLICT (model_id, hour) DO UPDATE SET watched = excluded.watched, broken = excluded.broken, thin = excluded.thin,
  unknown = excluded.unknown, servers_min = excluded.servers_min, servers_mean = excluded.servers_mean,
  bottleneck_mean = excluded.bottleneck_mean, bottleneck_believed_mean = excluded.bottleneck_believed_mean
"""

_MODELS = f"""
INSERT INTO monitor_modelday AS was (model_id, day, watched, broken, thin, unknown)
SELECT model_id, %(day)s, bit_or(bit), bit_or(CASE WHEN NOT isempty(missing) THEN bit ELSE {_ZERO} END),
  bit_or(CASE WHEN isempty(missing) AND isempty(unread) AND NOT isempty(thin) THEN bit ELSE {_ZERO} END),
  bit_or(CASE WHEN isempty(missing) AND NOT isempty(unread) THEN bit ELSE {_ZERO} END)
FROM (SELECT *, set_bit({_ZERO}, {_MINUTE}, 1) AS bit FROM monitor_modelminute WHERE ts >= %(hour)s AND ts < %(next)s) AS minute
GROUP BY model_id
ON CONFLICT (model_id, day) DO UPDATE SET watched = (was.watched & %(others)s) | excluded.watched,
  broken = (was.broken & %(others)s) | excluded.broken, thin = (was.thin & %(others)s) | excluded.thin,
  unknown = (was.unknown & %(others)s) | excluded.unknown
"""  # noqa: S608

# A block that was in trouble when the hour was rolled up before may be so no more: a second look in its minute knew better.
_BLOCKS = f"""
WITH trouble AS (
  SELECT model_id, ts, what, block
  FROM monitor_modelminute,
    LATERAL (VALUES ('missing', missing), ('thin', thin), ('unread', unread)) AS kinds (what, blocks),
    LATERAL unnest(blocks) AS part, LATERAL generate_series(lower(part), upper(part) - 1) AS block
  WHERE ts >= %(hour)s AND ts < %(next)s)
INSERT INTO monitor_blockday AS was (model_id, block, day, missing, thin, unread)
SELECT model_id, block, %(day)s, bit_or(CASE WHEN what = 'missing' THEN bit ELSE {_ZERO} END),
  bit_or(CASE WHEN what = 'thin' THEN bit ELSE {_ZERO} END), bit_or(CASE WHEN what = 'unread' THEN bit ELSE {_ZERO} END)
FROM (SELECT model_id, block, what, set_bit({_ZERO}, {_MINUTE}, 1) AS bit FROM trouble UNION ALL
      SELECT model_id, block, 'over', {_ZERO} FROM monitor_blockday AS told
      WHERE day = %(day)s AND bit_count((missing | thin | unread) & ~ %(others)s::bit(1440)) > 0 AND EXISTS (
        SELECT FROM monitor_modelminute AS seen WHERE seen.model_id = told.model_id AND ts >= %(hour)s AND ts < %(next)s)
     ) AS minute
GROUP BY model_id, block
ON CONFLICT (model_id, block, day) DO UPDATE SET missing = (was.missing & %(others)s) | excluded.missing,
  thin = (was.thin & %(others)s) | excluded.thin, unread = (was.unread & %(others)s) | excluded.unread
"""  # noqa: S608

_NO_HOURS = "array_fill(NULL::int, ARRAY[24])"


def _one_hour(name: str) -> str:
    """A day's row in which only this hour is known; NULL where not even that."""
    hours = f"array_fill(NULL::int, ARRAY[%(index)s]) || {name} || array_fill(NULL::int, ARRAY[23 - %(index)s])"
    return f"CASE WHEN {name} IS NOT NULL THEN {hours} END"


def _hour_replaced(name: str) -> str:
    was, seen = f"(coalesce(was.{name}, {_NO_HOURS}))", f"(coalesce(excluded.{name}, {_NO_HOURS}))"
    hours = f"{was}[1:%(index)s] || {seen}[%(index)s + 1] || {was}[%(index)s + 2:24]"
    return f"{name} = CASE WHEN coalesce(was.{name}, excluded.{name}) IS NOT NULL THEN {hours} END"


_PEERS = f"""
INSERT INTO monitor_peerday AS was
  (model_id, peer_id, day, up, unknown, first_minute, throughput, block_minutes, cache_mean, cache_least)
SELECT model_id, peer_id, %(day)s, bit_or(CASE WHEN up THEN bit ELSE {_ZERO} END), bit_or(bit) FILTER (WHERE up IS NULL),
  min(minute), array_fill(NULL::real, ARRAY[%(index)s]) || (avg(throughput) FILTER (WHERE up))::real
    || array_fill(NULL::real, ARRAY[23 - %(index)s]),
  array_fill(0, ARRAY[%(index)s]) || coalesce(sum("end" - start) FILTER (WHERE up), 0)::int
    || array_fill(0, ARRAY[23 - %(index)s]),
  {_one_hour("(avg(cache_tokens) FILTER (WHERE up))::int")}, {_one_hour("(min(cache_tokens) FILTER (WHERE up))::int")}
FROM (SELECT *, {_MINUTE} AS minute, set_bit({_ZERO}, {_MINUTE}, 1) AS bit
      FROM monitor_peersample WHERE ts >= %(hour)s AND ts < %(next)s) AS sample
GROUP BY model_id, peer_id
ON CONFLICT (model_id, peer_id, day) DO UPDATE SET up = (was.up & %(others)s) | excluded.up,
  unknown = CASE WHEN was.unknown IS NULL THEN excluded.unknown
    ELSE nullif((was.unknown & %(others)s) | coalesce(excluded.unknown, {_ZERO}), {_ZERO}) END,
  first_minute = least(was.first_minute, excluded.first_minute),
  throughput = was.throughput[1:%(index)s] || excluded.throughput[%(index)s + 1] || was.throughput[%(index)s + 2:24],
  block_minutes = was.block_minutes[1:%(index)s] || excluded.block_minutes[%(index)s + 1]
    || was.block_minutes[%(index)s + 2:24],
  {_hour_replaced("cache_mean")}, {_hour_replaced("cache_least")}
"""  # noqa: S608


def roll_up(now: datetime) -> int:
    """Every hour with minutes since the last time, the running one too; how many hours that were. Hours without any are passed
    over, and count as done only by a clock that crawls bear out."""
    hours = _hours_since(_first_hour(now), now)
    for hour in hours:
        with transaction.atomic():
            roll_up_hour(hour)
            _done(min(hour + HOUR, now))
    if Crawl.objects.all().bear_out(now):
        _done(now)
    return len(hours)


def _done(until: datetime) -> None:
    RolledUp.objects.update_or_create(id=1, defaults={"until": until})


def roll_up_hour(hour: datetime) -> None:
    midnight = hour.replace(hour=0)
    others = "1" * (hour.hour * 60) + "0" * 60 + "1" * (1440 - 60 - hour.hour * 60)
    facts: dict[str, Any] = {
        "hour": hour,
        "next": hour + HOUR,
        "day": hour.date(),
        "midnight": midnight,
        "others": others,
        "index": hour.hour,
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('monitor.history.rollups'))")
        for statement in (_HOURS, _MODELS, _BLOCKS, _PEERS):
            cursor.execute(statement, facts)


def count_again_from(at: datetime) -> None:
    """Where the clock was set back: minutes that were counted come again."""
    RolledUp.objects.filter(until__gt=at).update(until=at)


def _first_hour(now: datetime) -> datetime:
    mark = RolledUp.objects.first()
    since = mark.until - LATE if mark else _oldest_minute() or now
    return min(since, now).astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _hours_since(first: datetime, now: datetime) -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT date_trunc('hour', ts, 'UTC') FROM monitor_modelminute WHERE ts >= %s AND ts <= %s ORDER BY 1",
            [first, now],
        )
        return [hour.astimezone(UTC) for (hour,) in cursor.fetchall()]


def _oldest_minute() -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(ts) FROM monitor_modelminute")
        (oldest,) = cursor.fetchone()
    return oldest
