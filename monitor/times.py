"""Moments as pages show them: relative in words, with the exact time in UTC beside. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from monitor.published import MISSED_INTERVALS, Published, ago, rfc3339

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment and the one at which it is told, both in Unix seconds."""

    at: float
    now: float

    @property
    def iso(self) -> str:
        return rfc3339(self.at)

    @property
    def ago(self) -> str:
        return ago(max(0.0, self.now - self.at))

    @property
    def ahead(self) -> str:
        away_s = self.at - self.now
        return ago(away_s) if away_s >= 1 else "a moment"

    @property
    def clock(self) -> str:
        """`14:02 UTC`, with the day where that is not today."""
        form = "%H:%M UTC" if int(self.now // _DAY_S) == int(self.at // _DAY_S) else "%-d %b %H:%M UTC"
        return datetime.fromtimestamp(self.at, UTC).strftime(form)


@dataclass(frozen=True, slots=True)
class Checked:
    """`Checked 12 s ago · next in 18 s`. The page's script counts on from both moments, and asks anew `stale_after_s` after
    the first: where no worker is left to push, the page must still learn that it has aged."""

    observed: Moment
    due: Moment
    stale: bool
    stale_after_s: int


def checked(published: Published) -> Checked | None:
    """None where the check is dated ahead: how long ago it was nobody can say."""
    if published.ahead_s:
        return None
    due = published.crawl.started_at + published.interval_s
    now = published.read_at
    stale_after_s = ceil(MISSED_INTERVALS * published.interval_s)
    return Checked(Moment(published.snapshot.at, now), Moment(due, now), published.stale, stale_after_s)
