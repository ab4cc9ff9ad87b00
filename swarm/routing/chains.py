"""The chain of servers through which a token comes back soonest: the cheapest way from the client through all blocks and back.

Knows candidates and their costs; does not know how to reach a server. A shortest path over (server, block): each server may be
entered and left anywhere, as the next one may be faster for the blocks that both hold.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from swarm.errors import MissingBlocks
from swarm.routing.candidates import OVERHEAD_PER_SERVER_S, Candidate, between_s
from swarm.wire.spans import Span, in_words, runs

MOST_PER_BLOCK = 16
"""Servers considered for one block, the most promising ones: in a swarm of hundreds the search takes about 0.1 s."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One server of a route and the blocks that it computes for it."""

    peer_id: str
    span: Span


Route = tuple[Hop, ...]

_Label = tuple[int, float, int, tuple[str, ...]]
"""What a way costs: servers without room for the session, seconds, servers, and their ids to settle what is equal."""
_Place = tuple[int, int]
"""A server by its index, and how many blocks are done when it is left."""


def choose_route(
    candidates: Iterable[Candidate],
    span: Span,
    avoid: Collection[str] = (),
    *,
    cache_tokens: int = 0,
    push: bool = False,
) -> Route:
    """The cheapest chain of hops that covers `span`, hop after hop without gap or overlap.

    A server without room for `cache_tokens` in its blocks is used only where there is no other way. The answer does not depend
    on the order of the candidates: equal costs are settled by fewer servers, then by peer id. Raises MissingBlocks, naming the
    blocks, where there is no chain.
    """
    usable = sorted((c for c in candidates if c.peer_id not in avoid), key=lambda c: (c.peer_id, c.span))
    if any(not any(block in c.span for c in usable) for block in span):
        raise missing(usable, span)
    considered = _most_promising(usable, span, cache_tokens)
    return _walk_back(_Search(considered, span, cache_tokens, push).cheapest(), considered)


def expected_s(route: Route, candidates: Iterable[Candidate], *, push: bool) -> float:
    """Seconds for one token over this route, as `choose_route` counts them."""
    by_id = {candidate.peer_id: candidate for candidate in candidates}
    seconds, before = 0.0, None
    for hop in route:
        server = by_id[hop.peer_id]
        seconds += _entering_s(before, server, push) + len(hop.span) * server.block_s
        before = server
    return seconds + (before.way_s if before else 0.0)


def missing(candidates: Iterable[Candidate], span: Span) -> MissingBlocks:
    """Says which blocks of `span` none of the candidates holds."""
    held = {block for candidate in candidates for block in candidate.span}
    holes = runs(block for block in span if block not in held)
    blocks = tuple(block for hole in holes for block in hole)
    return MissingBlocks(f"{in_words(holes)} {'has' if len(blocks) == 1 else 'have'} no server", blocks)


def _entering_s(before: Candidate | None, server: Candidate, push: bool) -> float:
    return OVERHEAD_PER_SERVER_S + (server.way_s if before is None else between_s(before, server, push=push))


def _most_promising(usable: Sequence[Candidate], span: Span, cache_tokens: int) -> list[Candidate]:
    """Of each block the servers that cost least for it when the ways to them are shared by all their blocks."""

    def promise(server: Candidate) -> tuple[bool, float]:
        blocks = min(server.span.end, span.end) - max(server.span.start, span.start)
        return server.is_full(span, cache_tokens), server.block_s + (OVERHEAD_PER_SERVER_S + server.way_s) / blocks

    kept: set[int] = set()
    for block in span:
        holders = [index for index, server in enumerate(usable) if block in server.span]
        if len(holders) > MOST_PER_BLOCK:
            holders = sorted(holders, key=lambda index: (promise(usable[index]), index))[:MOST_PER_BLOCK]
        kept.update(holders)
    return [usable[index] for index in sorted(kept)]


class _Search:
    """Dijkstra's, over (server, blocks done). `home` is the client again, with all of them done."""

    def __init__(self, servers: Sequence[Candidate], span: Span, cache_tokens: int, push: bool) -> None:
        self._servers, self._span, self._push = servers, span, push
        self._full = [server.is_full(span, cache_tokens) for server in servers]
        self._holders = _holders(servers, span)
        self._best: dict[_Place, _Label] = {}
        self._came_from: dict[_Place, _Place | None] = {}
        self._queue: list[tuple[_Label, _Place]] = []

    def cheapest(self) -> list[_Place]:
        """The places along the cheapest way, from the last to the first."""
        home: _Place = (-1, self._span.end)
        self._enter((0, 0.0, 0, ()), None)
        while self._queue:
            label, place = heapq.heappop(self._queue)
            if label != self._best[place]:
                continue
            if place == home:
                return self._trace(home)
            index, block = place
            server = self._servers[index]
            full, seconds, hops, peers = label
            if block == self._span.end:
                self._offer(home, (full, seconds + server.way_s, hops, peers), place)
                continue
            if block in server.span:
                self._offer((index, block + 1), (full, seconds + server.block_s, hops, peers), place)
            self._enter(label, place)
        raise missing(self._servers, self._span)

    def _enter(self, label: _Label, origin: _Place | None) -> None:
        """Every server that holds the next block, from `origin` or from the client."""
        full, seconds, hops, peers = label
        before, block = origin or (None, self._span.start)
        leaving = None if before is None else self._servers[before]
        for index in self._holders[block]:
            if index != before:
                server = self._servers[index]
                cost = seconds + _entering_s(leaving, server, self._push) + server.block_s
                self._offer((index, block + 1), (full + self._full[index], cost, hops + 1, (*peers, server.peer_id)), origin)

    def _offer(self, place: _Place, label: _Label, origin: _Place | None) -> None:
        if place not in self._best or label < self._best[place]:
            self._best[place], self._came_from[place] = label, origin
            heapq.heappush(self._queue, (label, place))

    def _trace(self, home: _Place) -> list[_Place]:
        places: list[_Place] = []
        place = self._came_from[home]
        while place is not None:
            places.append(place)
            place = self._came_from[place]
        return places


def _holders(servers: Sequence[Candidate], span: Span) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for index, server in enumerate(servers):
        for block in range(max(server.span.start, span.start), min(server.span.end, span.end)):
            found[block].append(index)
    return found


def _walk_back(places: Sequence[_Place], servers: Sequence[Candidate]) -> Route:
    """Adjacent blocks of one server are one hop."""
    hops: list[Hop] = []
    for index, done in reversed(places):
        peer_id = servers[index].peer_id
        if hops and hops[-1].peer_id == peer_id:
            hops[-1] = Hop(peer_id, Span(hops[-1].span.start, done))
        else:
            hops.append(Hop(peer_id, Span(done - 1, done)))
    return tuple(hops)
