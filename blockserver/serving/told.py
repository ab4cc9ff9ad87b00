"""How often a server lets one coordinator move it. Pure; seconds of one clock.

A valid lease for a hole is followed at once, and whether the hole is there the server does not check. So a coordinator that is
broken, or means harm, could keep it loading for ever. An honest one needs a server that has just moved once more at times (a
chain, a second hole); it does not need it five times within the hour.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MOST_MOVES = 4
WITHIN_S = 3600.0


@dataclass
class ToldMoves:
    """The latest moves by the coordinator's word. An arrival is none."""

    _at: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_MOVES), init=False)

    def note(self, now: float) -> None:
        self._at.append(now)

    def rest_s(self, now: float) -> float:
        """For how long no further one is made; 0 where one is."""
        return max(0.0, self._at[0] + WITHIN_S - now) if len(self._at) == MOST_MOVES else 0.0
