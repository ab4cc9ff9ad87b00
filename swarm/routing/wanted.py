"""What a client wants a route for."""

from __future__ import annotations

from dataclasses import dataclass

from swarm.wire.spans import Span


@dataclass(frozen=True, slots=True)
class Wanted:
    """Blocks `span` in order. `cache_tokens` is the length of the session times its rows, 0 where no session is opened.

    `push` says that servers hand their outputs on to each other, so that the ways between them count.
    """

    span: Span
    cache_tokens: int = 0
    push: bool = False
    allowed: frozenset[str] | None = None
    blocked: frozenset[str] = frozenset()

    def admits(self, peer_id: str) -> bool:
        return peer_id not in self.blocked and (self.allowed is None or peer_id in self.allowed)
