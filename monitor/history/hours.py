"""What a server gave in the last week, hour by hour, in words. Pure; knows no page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.history.peers import Hour
from monitor.published import rfc3339
from monitor.times import Moment

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class HourLine:
    """A row of the tables. `value` and `cache_value` are what is drawn: empty where nothing is known."""

    iso: str
    clock: str
    at: int
    value: str
    words: str
    cache_value: str
    cache_mean: str
    cache_least: str


def hour_line(hour: Hour) -> HourLine:
    return HourLine(
        iso=rfc3339(hour.at),
        clock=_clock(hour),
        at=int(hour.at),
        value="" if hour.throughput is None else f"{hour.throughput:.1f}",
        words=UNKNOWN if hour.throughput is None else f"{hour.throughput:,.0f}",
        cache_value="" if hour.cache_mean is None else str(hour.cache_mean),
        cache_mean=_tokens(hour.cache_mean),
        cache_least=_tokens(hour.cache_least),
    )


def mean_words(hours: Sequence[Hour]) -> str:
    """Empty where it never said."""
    known = [hour.throughput for hour in hours if hour.throughput is not None]
    return f"Mean of the last week, while online: {sum(known) / len(known):,.0f} tok/s, as it reports." if known else ""


def cache_left_words(hours: Sequence[Hour]) -> str:
    """Empty where it never said. The tightest hour is the latest of those that were equally tight."""
    means = [hour.cache_mean for hour in hours if hour.cache_mean is not None]
    tight = [(hour.cache_least, -hour.at, hour) for hour in hours if hour.cache_least is not None]
    if not means or not tight:
        return ""
    least, _, hour = min(tight)
    mean = f"Mean of the last week, while online: room for {sum(means) / len(means):,.0f} tokens"
    return f"{mean}; the least was {least:,}, in the hour from {_clock(hour)}."


def _clock(hour: Hour) -> str:
    return Moment(hour.at, hour.at + 86_400).clock


def _tokens(tokens: int | None) -> str:
    return UNKNOWN if tokens is None else f"{tokens:,}"
