"""The minutes of a day as a set of bits, the first minute first. Pure; knows no database and no swarm.

Every length of time in the history is a number of such minutes, so that uptime is counted and never measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

IN_A_DAY = 1_440
NO_MINUTE = "0" * IN_A_DAY
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Minutes:
    """`text` is Postgres' form of bit(1440): one digit a minute."""

    text: str = NO_MINUTE

    def __post_init__(self) -> None:
        if len(self.text) != IN_A_DAY or self.text.strip("01"):
            raise ValueError("a day has 1440 minutes, each 0 or 1")

    @classmethod
    def of(cls, minutes: set[int] | range) -> Minutes:
        return cls("".join("1" if minute in minutes else "0" for minute in range(IN_A_DAY)))

    def __len__(self) -> int:
        return self.text.count("1")

    def __contains__(self, minute: object) -> bool:
        return isinstance(minute, int) and self.text[minute] == "1"

    def since(self, minute: int) -> Minutes:
        return Minutes("0" * minute + self.text[minute:])

    def without(self, other: Minutes) -> Minutes:
        left = int(self.text, 2) & ~int(other.text, 2)
        return Minutes(f"{left:0{IN_A_DAY}b}")


def minute_start(at: float) -> float:
    return at // MINUTE_S * MINUTE_S


def day_of(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def minute_of_day(at: float) -> int:
    return int(at % 86_400 // MINUTE_S)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def last_days(today: date, count: int) -> list[date]:
    """`count` days up to and with today, oldest first."""
    return [today - timedelta(days=back) for back in reversed(range(count))]


def bridged(earlier_at: float | None, at: float, interval_s: float) -> list[float]:
    """The minutes strictly between two crawls in a row: the earlier one stands for them until the later one is due.

    With an interval of up to 40 s there are none. After a missed crawl there are none either: nobody looked.
    """
    if earlier_at is None or not 0 < at - earlier_at <= 1.5 * interval_s:
        return []
    first, last = minute_start(earlier_at) + MINUTE_S, minute_start(at)
    return [first + MINUTE_S * step for step in range(int((last - first) // MINUTE_S))]
