"""Postgres -> uptime of models, blocks and servers over the last days. Only watched minutes count, up or down.

Days come from the roll-ups, and are as new as the last of them. `now` says which day is the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from django.db import connection
from django.db.models import Sum, Value
from django.db.models.fields import IntegerField
from django.db.models.functions import Coalesce

from monitor.history.minutes import IN_A_DAY, last_days, moment
from monitor.history.models import BlockDay, ModelDay, PeerDay, SwarmDay

DAYS = 90


@dataclass(frozen=True, slots=True)
class Tally:
    """Minutes. `watched` holds the others; what is none of them was complete."""

    watched: int = 0
    broken: int = 0
    thin: int = 0
    unknown: int = 0

    @property
    def up(self) -> int:
        return self.watched - self.broken - self.unknown

    @property
    def known(self) -> int:
        return self.watched - self.unknown

    @property
    def share_up(self) -> float | None:
        """Of the minutes of which we know; None where there are none: unknown is not zero, and not a hundred."""
        return self.up / self.known if self.known else None

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.watched + other.watched,
            self.broken + other.broken,
            self.thin + other.thin,
            self.unknown + other.unknown,
        )


@dataclass(frozen=True, slots=True)
class DayTally:
    """`length` is how many minutes the day has had."""

    day: date
    minutes: Tally
    length: int = IN_A_DAY


@dataclass(frozen=True, slots=True)
class PeerUptime:
    """Since the server was first seen within the days asked for."""

    up: int
    known: int

    @property
    def share_up(self) -> float | None:
        return self.up / self.known if self.known else None


def total(days: Iterable[DayTally]) -> Tally:
    return sum((day.minutes for day in days), Tally())


def model_days(swarm: str, now: float, days: int = DAYS) -> dict[str, list[DayTally]]:
    """By prefix, a tally for each day, oldest first; days without a row were not watched. One query."""
    listed = last_days(moment(now).date(), days)
    found: dict[str, dict[date, Tally]] = {}
    rows = ModelDay.objects.filter(model__swarm=swarm, day__gte=listed[0]).annotate_counts()
    for prefix, day, *counts in rows.values_list("model__prefix", "day", "n_watched", "n_broken", "n_thin", "n_unknown"):
        found.setdefault(prefix, {})[day] = Tally(*counts)
    today = int(now % 86_400 // 60) + 1
    lengths = {day: today if day == listed[-1] else IN_A_DAY for day in listed}
    return {
        prefix: [DayTally(day, tallies.get(day, Tally()), lengths[day]) for day in listed] for prefix, tallies in found.items()
    }


def block_tallies(model_id: int, num_blocks: int, now: float, days: int = DAYS) -> list[Tally]:
    """One tally a block: `broken` are the minutes without a server. Two queries."""
    first = last_days(moment(now).date(), days)[0]
    rows = BlockDay.objects.filter(model_id=model_id, day__gte=first).annotate_counts()
    sums = rows.values("block").annotate(broken=Sum("n_missing"), one=Sum("n_thin"), unknown=Sum("n_unread"))
    trouble: Mapping[int, Tally] = {r["block"]: Tally(0, r["broken"], r["one"], r["unknown"]) for r in sums}
    watched = Tally(watched=watched_minutes(model_id, now, days))
    return [watched + trouble.get(block, Tally()) for block in range(num_blocks)]


def watched_minutes(model_id: int, now: float, days: int = DAYS) -> int:
    first = last_days(moment(now).date(), days)[0]
    rows = ModelDay.objects.filter(model_id=model_id, day__gte=first).annotate_counts()
    counted = rows.aggregate(minutes=Coalesce(Sum("n_watched"), Value(0), output_field=IntegerField()))
    return int(counted["minutes"])


def swarm_watched(swarm: str, now: float, days: int = DAYS) -> tuple[int, int]:
    """Minutes watched, and minutes since the first watched one of these days."""
    listed = last_days(moment(now).date(), days)
    rows = list(SwarmDay.objects.filter(swarm=swarm, day__gte=listed[0]).order_by("day").values_list("day", "watched"))
    if not rows:
        return 0, 0
    first_day, first = rows[0]
    begun = (moment(now).date() - first_day).days * IN_A_DAY - first.text.index("1") + int(now % 86_400 // 60) + 1
    return sum(len(watched) for _, watched in rows), begun


_PEER = """
SELECT coalesce(sum(bit_count(peer.up)), 0)::int,
  coalesce(sum(bit_count(CASE WHEN model.day = first.day
    THEN model.watched & (~(model.watched & ~model.watched) >> first.first_minute) ELSE model.watched END)
    - coalesce(bit_count(peer.unknown), 0)), 0)::int
FROM (SELECT day, first_minute FROM monitor_peerday
      WHERE model_id = %(model)s AND peer_id = %(peer)s AND day >= %(since)s ORDER BY day LIMIT 1) AS first
JOIN monitor_modelday AS model ON model.model_id = %(model)s AND model.day >= first.day
LEFT JOIN monitor_peerday AS peer ON peer.model_id = %(model)s AND peer.peer_id = %(peer)s AND peer.day = model.day
"""


def peer_uptime(model_id: int, peer_id: str, now: float, days: int = DAYS) -> PeerUptime | None:
    """None where the server was never seen in these days."""
    number = PeerDay.objects.filter(model_id=model_id, peer__peer_id=peer_id).values_list("peer_id", flat=True).first()
    if number is None:
        return None
    since = last_days(moment(now).date(), days)[0]
    with connection.cursor() as cursor:
        cursor.execute(_PEER, {"model": model_id, "peer": number, "since": since})
        up, known = cursor.fetchone()
    return PeerUptime(up, known) if known or up else None
