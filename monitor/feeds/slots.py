"""How many streams a process holds open at once, in all and for one address. Knows no HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

IN_ALL = 500
"""A stream costs 104 kB and a thread that sleeps (500 of them measured); more viewers belong on more processes."""
FOR_ONE = 20
"""Addresses are shared, by offices and by providers; a program needs one stream."""


class Full(Exception):
    """No room; `words` say whose limit it is."""


class Slots:
    def __init__(self, in_all: int = IN_ALL, for_one: int = FOR_ONE) -> None:
        self._in_all, self._for_one = in_all, for_one
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._taken.total()

    def take(self, who: str) -> Callable[[], None]:
        """What is returned gives the place back; calling it again does nothing."""
        if self.taken >= self._in_all:
            raise Full(f"this process holds {self._in_all} streams already; try again later")
        if self._taken[who] >= self._for_one:
            raise Full(f"your address holds {self._for_one} streams already; close one first")
        self._taken[who] += 1
        held = [who]

        def free() -> None:
            if held:
                self._taken[held.pop()] -= 1
                self._taken += Counter()  # Drops those that reached zero: addresses are not kept.

        return free
