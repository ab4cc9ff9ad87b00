"""Servers that failed are left alone for a while, longer each time; one success and it is forgotten.

Time is an argument, in seconds of any clock that only goes forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_BAN_S = 15.0
"""As Petals' client: a server that restarts is back in about that time."""
LONGEST_BAN_S = 900.0
"""By then its record has long run out if it is gone."""
MOST_REMEMBERED = 4_096
"""Peer ids cost nothing to make up: the bans that end first are forgotten beyond so many."""


@dataclass(slots=True)
class _Ban:
    failures: int = 0
    until: float = 0.0


@dataclass
class Bans:
    """Who is to be avoided, and until when."""

    first_s: float = FIRST_BAN_S
    longest_s: float = LONGEST_BAN_S
    _bans: dict[str, _Ban] = field(default_factory=dict)

    def failed(self, peer_id: str, now: float) -> float:
        """Seconds for which the peer is banned from now on: each failure in a row doubles them."""
        ban = self._bans.setdefault(peer_id, _Ban())
        length_s = min(self.first_s * 2.0 ** min(ban.failures, 60), self.longest_s)
        ban.failures, ban.until = ban.failures + 1, now + length_s
        if len(self._bans) > MOST_REMEMBERED:
            del self._bans[min(self._bans, key=lambda peer: self._bans[peer].until)]
        return length_s

    def worked(self, peer_id: str) -> None:
        self._bans.pop(peer_id, None)

    def in_force(self, now: float) -> frozenset[str]:
        return frozenset(peer_id for peer_id, ban in self._bans.items() if ban.until > now)

    def forgive(self) -> None:
        """All may be asked again, as nobody else is left; the next failure still bans for longer than the last."""
        for ban in self._bans.values():
            ban.until = 0.0
