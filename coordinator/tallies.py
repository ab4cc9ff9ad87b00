"""Counts what hints come to, by day: for the pages, and for `swarm_hint_decisions_total`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from django.db.models import F, Sum
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.models import Tally

STAY = "stay"
OFFERED = "offered"
UNKNOWN = ""
"""In the place of a prefix: all models that the monitor does not know."""


def tally(swarm: str, prefix: str, outcome: str, now: datetime) -> None:
    rows = Tally.objects.filter(swarm=swarm, prefix=prefix, day=now.date(), outcome=outcome)
    if not rows.update(count=F("count") + 1):
        Tally.objects.get_or_create(swarm=swarm, prefix=prefix, day=now.date(), outcome=outcome)
        rows.update(count=F("count") + 1)


def by_day(swarm: str, prefix: str | None, now: datetime, days: int) -> dict[date, dict[str, int]]:
    """Newest day first; days without any hint are left out."""
    rows = Tally.objects.filter(swarm=swarm, day__gt=now.date() - timedelta(days=days))
    rows = rows if prefix is None else rows.filter(prefix=prefix)
    found: dict[date, dict[str, int]] = {}
    for day, outcome, total in rows.values_list("day", "outcome").annotate(total=Sum("count")).order_by("-day", "outcome"):
        found.setdefault(day, {})[outcome] = total
    return found


class DecisionCollector(Collector):
    """Labels are bounded: models that the monitor has seen, and our own words for outcomes."""

    def __init__(self, swarm: str) -> None:
        self._swarm = swarm

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "swarm_hint_decisions", "What the coordinator answered, and what its hints came to", labels=["model", "outcome"]
        )
        totals = Tally.objects.filter(swarm=self._swarm).values_list("prefix", "outcome").annotate(total=Sum("count"))
        for prefix, outcome, total in totals.order_by("prefix", "outcome"):
            family.add_metric([prefix, outcome], total)
        yield family
