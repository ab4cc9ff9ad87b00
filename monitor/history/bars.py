"""Days as bars, pure: colour is the worst level of the day, the cut its share without a route, hatch was not watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.drawing.strips import Shape
from monitor.history.minutes import IN_A_DAY
from monitor.history.uptime import DayTally, Tally, total

HEIGHT = 56
STEP, WIDTH = 8, 6
LEAST = 4
"""Of 56: a day with one broken minute must show it."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the minutes of a day are called; `thin` is empty where there is no such thing."""

    up: str
    broken: str
    unknown: str
    thin: str
    whole: str


OF_MODEL = Words("of the watched time it could run", "could not run", "unknown", "one server on some block", "complete")
OF_SERVER = Words("of the watched time it was online", "not online", "not checked", "", "online all the time")


@dataclass(frozen=True, slots=True)
class Bar:
    """A day, stacked from below: what ran, in the colour of the day's worst level; what did not; what nobody watched."""

    x: int
    day: str
    level: str
    ran: int
    cut: int
    unwatched: int
    label: str

    @property
    def cut_y(self) -> int:
        return self.unwatched

    @property
    def ran_y(self) -> int:
        return self.unwatched + self.cut


@dataclass(frozen=True, slots=True)
class History:
    bars: tuple[Bar, ...]
    summary: str
    details: tuple[Bar, ...]
    """Days with something to tell, newest first: the text beside the bars."""

    @property
    def width(self) -> int:
        return len(self.bars) * STEP

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """One path a level, however many days; `cut` is what did not run, `unwatched` is to be hatched."""
        paths: dict[str, list[str]] = {}
        first = next((bar.x for bar in self.bars if bar.level != "unwatched"), 0)
        for bar in self.bars:
            if bar.x < first:
                # Before the monitor was there, or knew of it: nothing was missed.
                paths.setdefault("before", []).append(f"M{bar.x} {HEIGHT - LEAST}h{WIDTH}v{LEAST}h-{WIDTH}z")
                continue
            for level, y, height in (
                ("unwatched", 0, bar.unwatched),
                ("cut", bar.cut_y, bar.cut),
                (bar.level, bar.ran_y, bar.ran),
            ):
                if height:
                    paths.setdefault(level, []).append(f"M{bar.x} {y}h{WIDTH}v{height}h-{WIDTH}z")
        return tuple(Shape(level, "".join(parts)) for level, parts in sorted(paths.items()))


def history(days: Sequence[DayTally], words: Words = OF_MODEL) -> History:
    bars = tuple(_bar(index, day, words) for index, day in enumerate(days))
    told = tuple(bar for bar in reversed(bars) if bar.level in ("n0", "n1", "unknown"))
    return History(bars, summary(days, words), told)


def summary(days: Sequence[DayTally], words: Words = OF_MODEL) -> str:
    """`98.4 % complete · watched 99.7 % of the time since 2 Sep`."""
    minutes = total(days)
    share = minutes.share_up
    first = next((index for index, day in enumerate(days) if day.minutes.watched), None)
    if share is None or first is None:
        return f"Not watched in these {len(days)} days."
    possible = sum(day.length for day in days[first:])
    since = f"since {days[first].day:%-d %b}" if first else f"in {len(days)} days"
    watched = f"watched {duration(minutes.watched)} of {duration(possible)} {since}"
    return f"{percent(share)} {words.up} · {watched}"


def percent(share: float) -> str:
    """Never rounded up to a hundred: that is said only where nothing was missing."""
    if share >= 1:
        return "100 %"
    return f"{min(share, 0.9999):.2%}".replace("%", " %") if share > 0.999 else f"{share * 100:.1f} %"


def duration(minutes: int) -> str:
    days, rest = divmod(minutes, IN_A_DAY)
    hours, left = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {left} min" if hours else f"{left} min"


def _bar(index: int, day: DayTally, words: Words) -> Bar:
    minutes, length = day.minutes, max(day.length, day.minutes.watched, 1)
    missed = length - minutes.watched
    unwatched = _share(missed, length) if minutes.watched else HEIGHT
    # A restart of the monitor costs a minute or two, and would otherwise draw over everything.
    unwatched = 0 if missed <= 10 and minutes.watched else unwatched
    cut = _share(minutes.broken, length)
    return Bar(
        x=index * STEP,
        day=f"{day.day:%-d %b %Y}",
        level=_level(minutes),
        ran=max(0, HEIGHT - unwatched - cut) or (LEAST if minutes.up else 0),
        cut=min(cut, HEIGHT - unwatched),
        unwatched=unwatched,
        label=_label(minutes, words),
    )


def _share(minutes: int, length: int) -> int:
    return min(HEIGHT - LEAST, max(LEAST, round(HEIGHT * minutes / length))) if minutes else 0


def _level(minutes: Tally) -> str:
    if not minutes.watched:
        return "unwatched"
    if minutes.broken:
        return "n0"
    if minutes.unknown:
        return "unknown"
    return "n1" if minutes.thin else "n6"


def _label(minutes: Tally, words: Words) -> str:
    if not minutes.watched:
        return "not watched"
    told = [
        f"{what} {duration(count)}"
        for what, count in ((words.broken, minutes.broken), (words.unknown, minutes.unknown), (words.thin, minutes.thin))
        if count
    ]
    return f"{', '.join(told) or words.whole}; watched {duration(minutes.watched)}"
