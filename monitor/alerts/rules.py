"""When an alarm begins, grows and ends. Pure: what is known and what one look says go in, what is known now and what to tell
come out.

- What was not seen changes nothing: it neither begins an alarm nor ends one.
- Bad news and good news are both believed at the second look; where the monitor has confirmed them itself, at once.
- An alarm is told when it begins, when it grows worse, and when it is over; each once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Topic(StrEnum):
    """What somebody wants to be told of."""

    MODEL = "model"
    REDUNDANCY = "redundancy"
    PEER = "peer"
    BOOTSTRAP = "bootstrap"
    BLIND = "blind"
    CANARY = "canary"


class News(StrEnum):
    FIRED = "fired"
    WORSE = "worse"
    RECOVERED = "recovered"
    TEST = "test"
    CONFIRM = "confirm"


CONFIRMED_ALREADY = frozenset({Topic.MODEL, Topic.BLIND})
"""These follow the monitor's incidents, which open after two looks and close with the first good one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One look. `bad` is None where it does not say; `at` is the moment of the look, in Unix seconds."""

    bad: bool | None
    at: float
    words: str = ""
    level: int = 1


@dataclass(frozen=True, slots=True)
class Alarm:
    """`bad_at` is when it was first seen; `good_at` when it was first seen to be over, which the next look must bear out."""

    bad_at: float
    fired: bool
    level: int = 1
    good_at: float | None = None


def advance(alarm: Alarm | None, finding: Finding, *, steady: bool) -> tuple[Alarm | None, News | None]:
    """`steady` findings need no second look."""
    if finding.bad is None:
        return alarm, None
    if finding.bad:
        return _bad(alarm, finding, steady)
    if alarm is None or not alarm.fired:
        return None, None
    if steady or (alarm.good_at is not None and finding.at > alarm.good_at):
        return None, News.RECOVERED
    return (alarm if alarm.good_at is not None else replace(alarm, good_at=finding.at)), None


def _bad(alarm: Alarm | None, finding: Finding, steady: bool) -> tuple[Alarm, News | None]:
    if alarm is None:
        return Alarm(finding.at, steady, finding.level), News.FIRED if steady else None
    if not alarm.fired:
        second = finding.at > alarm.bad_at
        return replace(alarm, fired=second, level=finding.level), News.FIRED if second else None
    worse = finding.level > alarm.level
    return replace(alarm, level=max(alarm.level, finding.level), good_at=None), News.WORSE if worse else None
