"""Postgres -> what one server did: its last day minute by minute, its last week hour by hour, its last ninety days.

A fixed number of reads, however many models it is in. Minutes are kept for a week, days for ninety.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

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


def peer_histories(model_ids: Sequence[int], peer_id: str, now: float) -> dict[int, PeerHistory]:
    """By model; empty where the history has never heard of the server. Five queries."""
    number = Peer.objects.filter(peer_id=peer_id).values_list("id", flat=True).first()
    if number is None:
        return {}
    wanted = list(model_ids)
    samples, watched = _samples(wanted, number, now), _watched(wanted, now)
    days, hours = _days(wanted, number, now), _hours_by_model(wanted, number, now)
    return {of: PeerHistory(tuple(samples[of]), frozenset(watched[of]), days[of], hours[of]) for of in wanted}


def _samples(model_ids: list[int], number: int, now: float) -> Mapping[int, list[Sample]]:
    since = moment(now) - timedelta(minutes=DAY_MINUTES)
    rows = PeerSample.objects.filter(model_id__in=model_ids, peer_id=number, ts__gt=since, ts__lte=moment(now)).order_by("ts")
    found: dict[int, list[Sample]] = defaultdict(list)
    for of, ts, start, end, state, throughput in rows.values_list("model_id", "ts", "start", "end", "state", "throughput"):
        found[of].append(Sample(ts.timestamp(), Span(start, end), state, throughput))
    return found


def _watched(model_ids: list[int], now: float) -> Mapping[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT model_id, extract(epoch FROM ts)::bigint / 60 FROM monitor_modelminute"
            " WHERE model_id = ANY(%s) AND ts > %s AND ts <= %s",
            [model_ids, moment(now) - timedelta(minutes=DAY_MINUTES), moment(now)],
        )
        for of, minute in cursor.fetchall():
            found[of].add(int(minute))
    return found


_DAYS = """
SELECT model.model_id, model.day, coalesce(bit_count(peer.up), 0)::int,
  (bit_count(CASE WHEN model.day = first.day
    THEN model.watched & (~(model.watched & ~model.watched) >> first.first_minute) ELSE model.watched END)
    - coalesce(bit_count(peer.unknown), 0))::int
FROM (SELECT DISTINCT ON (model_id) model_id, day, first_minute FROM monitor_peerday
      WHERE model_id = ANY(%(models)s) AND peer_id = %(peer)s AND day >= %(since)s ORDER BY model_id, day) AS first
JOIN monitor_modelday AS model ON model.model_id = first.model_id AND model.day >= first.day
LEFT JOIN monitor_peerday AS peer ON peer.model_id = model.model_id AND peer.peer_id = %(peer)s AND peer.day = model.day
"""


def _days(model_ids: list[int], number: int, now: float) -> Mapping[int, tuple[DayTally, ...]]:
    """What was not up counts as `broken`, since the server was first seen; minutes without a check of it count nowhere."""
    listed = last_days(moment(now).date(), DAYS)
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, {"models": model_ids, "peer": number, "since": listed[0]})
        found: dict[tuple[int, date], Tally] = {
            (of, day): Tally(known, max(0, known - up)) for of, day, up, known in cursor.fetchall()
        }
    today = int(now % 86_400 // 60) + 1
    lengths = {day: today if day == listed[-1] else IN_A_DAY for day in listed}
    return {
        of: tuple(DayTally(day, found.get((of, day), Tally()), minutes) for day, minutes in lengths.items()) for of in model_ids
    }


def hours_of(model_id: int, peer_id: str, now: float) -> tuple[Hour, ...]:
    """Its last week, hour by hour, the running one too; one query."""
    number = Peer.objects.filter(peer_id=peer_id).values("id")
    return _hours_by_model([model_id], number, now)[model_id]


def _hours_by_model(model_ids: list[int], number: int | QuerySet[Peer, Any], now: float) -> dict[int, tuple[Hour, ...]]:
    since = last_days(moment(now).date(), WEEK)[0]
    rows = PeerDay.objects.filter(model_id__in=model_ids, peer_id__in=[number] if isinstance(number, int) else number)
    found: dict[int, dict[date, list[Any]]] = {of: {} for of in model_ids}
    told = rows.filter(day__gte=since).values_list("model_id", "day", "throughput", "cache_mean", "cache_least")
    for of, day, *series in told:
        found[of][day] = [one or NO_HOURS for one in series]
    return {of: _hours(days, now) for of, days in found.items()}


def _hours(found: Mapping[date, list[Any]], now: float) -> tuple[Hour, ...]:
    listed = last_days(moment(now).date(), WEEK)
    midnight = now // 86_400 * 86_400
    this_hour = int(now % 86_400 // 3_600)
    hours: list[Hour] = []
    for back, day in enumerate(reversed(listed)):
        until = this_hour + 1 if back == 0 else 24
        start = midnight - back * 86_400
        told = list(zip(*found.get(day, [NO_HOURS] * 3), strict=True))[:until]
        hours = [Hour(start + hour * 3_600, *values) for hour, values in enumerate(told)] + hours
    return tuple(hours)
