"""Routes for training: many passes at once, so that no server waits while others have a queue.

Pure: randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from swarm.routing.candidates import Candidate
from swarm.routing.chains import Hop, Route, missing
from swarm.wire.spans import Span


def spread_route(candidates: Iterable[Candidate], span: Span, draw: Callable[[], float], avoid: Collection[str] = ()) -> Route:
    """A chain of which each server gets as many as it can do.

    At each block one of its holders is drawn by rate and used to its end. `draw` gives numbers within [0, 1).
    """
    usable = sorted((c for c in candidates if c.peer_id not in avoid), key=lambda c: (c.peer_id, c.span))
    hops: list[Hop] = []
    block = span.start
    while block < span.end:
        holders = [candidate for candidate in usable if block in candidate.span]
        if not holders:
            raise missing(usable, span)
        chosen = _drawn(holders, [1 / holder.block_s for holder in holders], draw())
        hops.append(Hop(chosen.peer_id, Span(block, min(chosen.span.end, span.end))))
        block = hops[-1].span.end
    return tuple(hops)


def _drawn(holders: Sequence[Candidate], weights: Sequence[float], drawn: float) -> Candidate:
    rest = drawn * sum(weights)
    for holder, weight in zip(holders, weights, strict=True):
        rest -= weight
        if rest < 0:
            return holder
    return holders[-1]
