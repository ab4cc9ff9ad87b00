"""Reading a crawl in several statements while the next one may be stored between two of them.

Postgres shows each statement what is committed when it begins. Models of one crawl beside servers of the next would make every
server absent and every block a hole, for one reader and one moment; such a reading is thrown away and made again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ParamSpec, Protocol, TypeVar

TRIES = 5
"""Crawls are seconds apart, and a reading takes milliseconds: a second try is rare, a third was never seen."""

Given = ParamSpec("Given")
Read = TypeVar("Read")


class Observed(Protocol):
    @property
    def observed_at(self) -> datetime | None: ...


Row = TypeVar("Row", bound=Observed)


class Torn(Exception):
    """Another crawl was stored while this one was read."""


def unless_newer(rows: Iterable[Row], crawl: Observed) -> list[Row]:
    """The rows; Torn where one of them is of a newer crawl."""
    read = list(rows)
    at = crawl.observed_at
    if any(at is None or row.observed_at is None or row.observed_at > at for row in read):
        raise Torn
    return read


def whole(reading: Callable[Given, Read]) -> Callable[Given, Read]:
    """Makes the reading again where it was torn."""

    @functools.wraps(reading)
    def read(*given: Given.args, **named: Given.kwargs) -> Read:
        for _ in range(TRIES - 1):
            try:
                return reading(*given, **named)
            except Torn:
                continue
        return reading(*given, **named)

    return read
