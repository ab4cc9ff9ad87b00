"""Ninety days as a calendar of incidents: how many of each kind touched a day. Pure but for its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, timedelta

from monitor.history.minutes import last_days, moment
from monitor.history.models import Incident
from monitor.history.rules import Kind

LEVELS = ((Kind.HOLE, "n0"), (Kind.BLIND, "unknown"), (Kind.THIN, "n1"))
WORDS = {
    Kind.HOLE: ("gap", "gaps"),
    Kind.THIN: ("one-server warning", "one-server warnings"),
    Kind.BLIND: ("time without sight", "times without sight"),
}


@dataclass(frozen=True, slots=True)
class CalendarDay:
    day: str
    number: int
    level: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Month:
    name: str
    days: tuple[CalendarDay, ...]


def calendar(rows: Iterable[Incident], now: float, count: int) -> tuple[Month, ...]:
    listed = last_days(moment(now).date(), count)
    kinds: dict[date, list[Kind]] = {day: [] for day in listed}
    for row in rows:
        day = max(row.started_before.astimezone(UTC).date(), listed[0])
        last = row.ended_before.astimezone(UTC).date() if row.ended_before else listed[-1]
        while day <= min(last, listed[-1]):
            kinds[day].append(Kind(row.kind))
            day += timedelta(days=1)
    months: dict[str, list[CalendarDay]] = {}
    for day in listed:
        months.setdefault(f"{day:%B %Y}", []).append(_day(day, kinds[day]))
    return tuple(Month(name, tuple(days)) for name, days in months.items())


def _day(day: date, kinds: list[Kind]) -> CalendarDay:
    level = next((level for kind, level in LEVELS if kind in kinds), "n2")
    counted = [(kinds.count(kind), WORDS[kind]) for kind, _ in LEVELS if kind in kinds]
    told = ", ".join(f"{count} {one if count == 1 else many}" for count, (one, many) in counted) or "no incident"
    return CalendarDay(day.isoformat(), day.day, level, str(len(kinds)) if kinds else "", f"{day:%-d %b}: {told}")
