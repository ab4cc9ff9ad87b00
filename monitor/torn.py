"""Reading a crawl in several statements while the next one may be stored between two of them.

Postgres shows each statement what is committed when it begins. Models of one crawl beside servers of the next would make every
server absent and every block a hole, for one reader and one moment; such a reading is thrown away and made again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

TRIES = 5
"""Crawls are seconds apart, and a reading takes milliseconds: a second try is rare, a third was never seen."""

Given = ParamSpec("Given")
Read = TypeVar("Read")


class Torn(Exception):
    """Another crawl was stored while this one was read."""


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
