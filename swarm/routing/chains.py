"""Which servers a request passes through: the cheapest chain from the first block to the last.

Knows servers, spans and rates; does not know how to reach a server. The costs follow Petals' client (`docs/protocol.md`):
half a round trip plus a fixed overhead for each server entered, the inverse of its rate for each block computed.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from swarm.errors import MissingBlocks
from swarm.wire.spans import Span, in_words, runs

UNKNOWN_ROUND_TRIP_S = 0.150
"""What Petals' client assumes of a server that it has not pinged."""
OVERHEAD_PER_SERVER_S = 0.018
"""Serialisation and scheduling at each server entered, as Petals' client counts it."""
UNKNOWN_BLOCKS_PER_S = 300.0
"""Inference rate in blocks per second of a server that does not say."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server that may be entered at any of its blocks. `blocks_per_s` is None where it is not known."""

    peer_id: str
    span: Span
    blocks_per_s: float | None = None
    round_trip_s: float | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One server of a route and the blocks that it computes for it."""

    peer_id: str
    span: Span


Route = tuple[Hop, ...]


def choose_route(candidates: Iterable[Candidate], span: Span, avoid: Collection[str] = ()) -> Route:
    """The cheapest chain of hops that covers `span`, hop after hop without gap or overlap.

    The answer does not depend on the order of the candidates: equal costs are settled by fewer servers, then by peer id.
    Raises MissingBlocks, naming the blocks, where there is no chain.
    """
    usable = sorted((c for c in candidates if c.peer_id not in avoid), key=lambda c: (c.peer_id, c.span))
    best: dict[int, tuple[float, int, tuple[str, ...]]] = {span.start: (0.0, 0, ())}
    came_by: dict[int, Hop] = {}
    queue: list[tuple[float, int, tuple[str, ...], int]] = [(0.0, 0, (), span.start)]
    while queue:
        cost, servers, peers, block = heapq.heappop(queue)
        if (cost, servers, peers) != best[block]:
            continue
        if block == span.end:
            return _walk_back(came_by, span)
        for candidate in usable:
            if block not in candidate.span:
                continue
            # A server once entered is left only where its span ends or the request does: leaving earlier never pays
            # for the next server's overhead, except where the next one is faster; so every exit is offered.
            for end in range(block + 1, min(candidate.span.end, span.end) + 1):
                reached = (cost + _cost(candidate, end - block), servers + 1, (*peers, candidate.peer_id))
                if end not in best or reached < best[end]:
                    best[end] = reached
                    came_by[end] = Hop(candidate.peer_id, Span(block, end))
                    heapq.heappush(queue, (*reached, end))
    raise missing(usable, span)


def missing(candidates: Iterable[Candidate], span: Span) -> MissingBlocks:
    """Says which blocks of `span` none of the candidates holds."""
    held = {block for candidate in candidates for block in candidate.span}
    holes = runs(block for block in span if block not in held)
    blocks = tuple(block for hole in holes for block in hole)
    return MissingBlocks(f"{in_words(holes)} {'has' if len(blocks) == 1 else 'have'} no server", blocks)


def _cost(candidate: Candidate, blocks: int) -> float:
    round_trip = UNKNOWN_ROUND_TRIP_S if candidate.round_trip_s is None else candidate.round_trip_s
    rate = candidate.blocks_per_s or UNKNOWN_BLOCKS_PER_S
    return round_trip / 2 + OVERHEAD_PER_SERVER_S + blocks / rate


def _walk_back(came_by: dict[int, Hop], span: Span) -> Route:
    hops: list[Hop] = []
    block = span.end
    while block != span.start:
        hops.append(came_by[block])
        block = came_by[block].span.start
    return tuple(reversed(hops))
