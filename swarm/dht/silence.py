"""Who answers within one crawl, and who does not: nobody is waited for twice. Forgotten when the next one begins.

Knows peers, and neither keys nor servers: who is silent in the DHT may still serve blocks, and is dialled all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hivemind.p2p import PeerID

MAX_SUSPECTS = 1_000
"""Anyone may name any number of peers that do not exist."""


@dataclass(slots=True)
class Silence:
    """`suspects` were silent in the crawl before: they are asked before anything is read, so that whoever is back is
    seen at once and the others cost no stage of this crawl anything."""

    suspects: tuple[PeerID, ...] = ()
    _silent: set[PeerID] = field(default_factory=set)
    _heard: set[PeerID] = field(default_factory=set)
    _forgiven: bool = False

    def begin(self) -> None:
        """A new crawl: everybody may have come back."""
        self.suspects = tuple(self._silent)[:MAX_SUSPECTS]
        self._silent.clear()
        self._heard.clear()
        self._forgiven = False

    def fell(self, peer: PeerID) -> None:
        self._silent.add(peer)
        self._heard.discard(peer)

    def spoke(self, peer: PeerID) -> None:
        self._heard.add(peer)
        self._silent.discard(peer)

    def heard(self, peer: PeerID) -> bool:
        return peer in self._heard

    def __contains__(self, peer: object) -> bool:
        return peer in self._silent

    def forgive(self, known: Iterable[PeerID]) -> None:
        """Where none of the known neighbours speaks, it may be ourselves who were out of breath: everybody gets one second
        chance in a crawl."""
        if not self._forgiven and self._silent.issuperset(known):
            self._silent.clear()
            self._forgiven = True
