"""A server as a client sees it, and what a step through it is expected to cost.

The costs follow Petals' client (`docs/protocol.md`): half a round trip for each way, a fixed overhead for each server entered,
the inverse of its rate for each block computed. Ours also count load, and the ways between servers as they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.wire.spans import Span

UNKNOWN_ROUND_TRIP_S = 0.150
"""What Petals' client assumes of a server that it has not pinged."""
OVERHEAD_PER_SERVER_S = 0.018
"""Serialisation and scheduling at each server entered, as Petals' client counts it."""
UNKNOWN_BLOCKS_PER_S = 300.0
"""Inference rate in blocks per second of a server that does not say."""
SLOWER_PER_SESSION = 0.15
"""Each further session slows the others by so much: eight at once were computed at 3.7 times the rate of one."""
KEYS_AND_VALUES = 2
"""`cache_tokens_left` counts both, for all blocks of a span."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server that may be entered and left at any of its blocks. None, and what is missing in `next_pings`, is not known.

    `next_pings` are round trips in seconds from this server to others, infinite where it did not reach them; `sessions` are
    open there now. `dtype` and `quant_type` say how it computes.
    """

    peer_id: str
    span: Span
    blocks_per_s: float | None = None
    round_trip_s: float | None = None
    cache_tokens_left: int | None = None
    sessions: int = 0
    next_pings: Mapping[str, float] = field(default_factory=dict, hash=False)
    dtype: str | None = None
    quant_type: str | None = None

    @property
    def way_s(self) -> float:
        """From the client to it, or back."""
        return (UNKNOWN_ROUND_TRIP_S if self.round_trip_s is None else self.round_trip_s) / 2

    @property
    def block_s(self) -> float:
        """One block for one token."""
        return (1 + SLOWER_PER_SESSION * self.sessions) / (self.blocks_per_s or UNKNOWN_BLOCKS_PER_S)

    def is_full(self, span: Span, cache_tokens: int) -> bool:
        """Whether it has no room for so many tokens in those blocks of `span` that it holds. Not known is not full."""
        if self.cache_tokens_left is None:
            return False
        blocks = min(self.span.end, span.end) - max(self.span.start, span.start)
        return KEYS_AND_VALUES * cache_tokens * max(blocks, 0) > self.cache_tokens_left


def between_s(one: Candidate, other: Candidate, *, push: bool) -> float:
    """From one server's answer to the other's input: directly with push, over the client without.

    Where neither has measured the way, it is taken to be as long as their ways to the client are on average: servers that are
    both near are near each other.
    """
    over_client = one.way_s + other.way_s
    if not push:
        return over_client
    measured = one.next_pings.get(other.peer_id, other.next_pings.get(one.peer_id))
    if measured is None:
        return over_client / 2
    return measured / 2 if math.isfinite(measured) else over_client
