"""What hints came to over time: counts by day, and how long repairs took. For pages and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median

from coordinator.models import Lease, Outcome, Phase
from coordinator.tallies import OFFERED, STAY, by_day
from swarm.wire.hints import Urgency

DAYS = 30


@dataclass(frozen=True, slots=True)
class Day:
    """One day's hints. `repaired_s` is the median over holes that were filled on that day, None where there were none."""

    day: date
    offered: int
    followed: int
    declined: int
    ignored: int
    broken_off: int
    stale: int
    told_to_stay: int
    repaired_s: float | None


def days(swarm: str, prefix: str | None, now: datetime, count: int = DAYS) -> list[Day]:
    repaired = _repair_times(swarm, prefix, now - timedelta(days=count))
    return [
        Day(
            day=day,
            offered=counts.get(OFFERED, 0),
            followed=counts.get(Outcome.FOLLOWED, 0),
            declined=counts.get(Outcome.DECLINED, 0),
            ignored=counts.get(Outcome.IGNORED, 0),
            broken_off=counts.get(Outcome.BROKEN_OFF, 0),
            stale=counts.get(Outcome.STALE, 0),
            told_to_stay=sum(number for outcome, number in counts.items() if outcome.startswith(STAY)),
            repaired_s=median(repaired[day]) if day in repaired else None,
        )
        for day, counts in by_day(swarm, prefix, now, count).items()
    ]


def _repair_times(swarm: str, prefix: str | None, since: datetime) -> dict[date, list[float]]:
    done = Lease.objects.filter(swarm=swarm, phase=Phase.DONE, urgency=Urgency.HOLE, closed_at__gte=since)
    done = done.only("phase", "created_at", "closed_at")
    found: dict[date, list[float]] = {}
    for lease in done if prefix is None else done.filter(prefix=prefix):
        if lease.closed_at is not None and lease.repaired_s is not None:
            found.setdefault(lease.closed_at.date(), []).append(lease.repaired_s)
    return found
