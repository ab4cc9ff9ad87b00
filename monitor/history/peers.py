"""Postgres -> what one server did: its last day minute by minute, its last week hour by hour, its last ninety days.

A fixed number of reads a model. Minutes are kept for a week, days for ninety.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from django.db import connection
from django.db.models import QuerySet

from monitor.history.minutes import IN_A_DAY, last_days, moment
from monitor.history.models import Peer, PeerDay, PeerSample
from monitor.history.uptime import DAYS, DayTally, Tally
from swarm.wire.spans import Span

DAY_MINUTES = 1_440
WEEK = 7
NO_HOURS = (None,) * 24


@dataclass(frozen=True, slots=True)
class Sample:
    """One minute that was watched. `at` in Unix seconds."""

    at: float
    span: Span
    state: str
    throughput: float | None


@dataclass(frozen=True, slots=True)
class Hour:
    """`at` in Unix seconds. Tokens per second while it was up, None where it was not or did not say; tokens of a session that
    its cache had room for, in the mean and at the least, likewise."""

    at: float
    throughput: float | None
    cache_mean: int | None = None
    cache_least: int | None = None


@dataclass(frozen=True, slots=True)
class PeerHistory:
    """`watched` are the minutes of the last day in which the model was watched at all, by the minute they begin."""

    samples: tuple[Sample, ...]
    watched: frozenset[int]
    days: tuple[DayTally, ...]
    hours: tuple[Hour, ...]


def peer_history(model_id: int, peer_id: str, now: float) -> PeerHistory | None:
    """None where the history has never heard of the server."""
    number = Peer.objects.filter(peer_id=peer_id).values_list("id", flat=True).first()
    if number is None:
        return None
    return PeerHistory(
        samples=_samples(model_id, number, now),
        watched=_watched(model_id, now),
        days=_days(model_id, number, now),
        hours=_hours(PeerDay.objects.filter(model_id=model_id, peer_id=number), now),
    )


def _samples(model_id: int, number: int, now: float) -> tuple[Sample, ...]:
    since = moment(now) - timedelta(minutes=DAY_MINUTES)
    rows = PeerSample.objects.filter(model_id=model_id, peer_id=number, ts__gt=since, ts__lte=moment(now)).order_by("ts")
    return tuple(
        Sample(ts.timestamp(), Span(start, end), state, throughput)
        for ts, start, end, state, throughput in rows.values_list("ts", "start", "end", "state", "throughput")
    )


def _watched(model_id: int, now: float) -> frozenset[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM ts)::bigint / 60 FROM monitor_modelminute WHERE model_id = %s AND ts > %s AND ts <= %s",
            [model_id, moment(now) - timedelta(minutes=DAY_MINUTES), moment(now)],
        )
        return frozenset(int(minute) for (minute,) in cursor.fetchall())


_DAYS = """
SELECT model.day, coalesce(bit_count(peer.up), 0)::int,
  (bit_count(CASE WHEN model.day = first.day
    THEN model.watched & (~(model.watched & ~model.watched) >> first.first_minute) ELSE model.watched END)
    - coalesce(bit_count(peer.unknown), 0))::int
FROM (SELECT day, first_minute FROM monitor_peerday
      WHERE model_id = %(model)s AND peer_id = %(peer)s AND day >= %(since)s ORDER BY day LIMIT 1) AS first
JOIN monitor_modelday AS model ON model.model_id = %(model)s AND model.day >= first.day
LEFT JOIN monitor_peerday AS peer ON peer.model_id = %(model)s AND peer.peer_id = %(peer)s AND peer.day = model.day
"""


def _days(model_id: int, number: int, now: float) -> tuple[DayTally, ...]:
    """What was not up counts as `broken`, since the server was first seen; minutes without a check of it count nowhere."""
    listed = last_days(moment(now).date(), DAYS)
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, {"model": model_id, "peer": number, "since": listed[0]})
        found: dict[date, Tally] = {day: Tally(known, max(0, known - up)) for day, up, known in cursor.fetchall()}
    today = int(now % 86_400 // 60) + 1
    return tuple(DayTally(day, found.get(day, Tally()), today if day == listed[-1] else IN_A_DAY) for day in listed)


def hours_of(model_id: int, peer_id: str, now: float) -> tuple[Hour, ...]:
    """Its last week, hour by hour, the running one too; one query."""
    return _hours(PeerDay.objects.filter(model_id=model_id, peer__peer_id=peer_id), now)


def _hours(days: QuerySet[PeerDay], now: float) -> tuple[Hour, ...]:
    listed = last_days(moment(now).date(), WEEK)
    rows = days.filter(day__gte=listed[0]).values_list("day", "throughput", "cache_mean", "cache_least")
    found = {day: [series or NO_HOURS for series in told] for day, *told in rows}
    midnight = now // 86_400 * 86_400
    this_hour = int(now % 86_400 // 3_600)
    hours: list[Hour] = []
    for back, day in enumerate(reversed(listed)):
        until = this_hour + 1 if back == 0 else 24
        start = midnight - back * 86_400
        told = list(zip(*found.get(day, [NO_HOURS] * 3), strict=True))[:until]
        hours = [Hour(start + hour * 3_600, *values) for hour, values in enumerate(told)] + hours
    return tuple(hours)
