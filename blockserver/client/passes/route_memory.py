"""Routes that are remembered for a while, block by block: many short passes, one reading of the DHT.

Looking at every boundary takes a pass for each block, training one after another; each would read the DHT anew. Callable as
a session's `find_route`. Knows peers of blocks; not what is asked of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import groupby

from blockserver.client.session import FindRoute
from swarm.errors import LocalError, MissingBlocks
from swarm.routing import Hop, Route
from swarm.wire.spans import Span, runs

LIFE_S = 60.0
"""As long as Petals' client goes without reading the DHT again; who fails is forgotten at once."""


class RouteMemory:
    """Asks `find` for the whole model where it can, so that passes over single blocks share few servers."""

    def __init__(self, find: FindRoute, whole: Span, clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._whole = whole
        self._clock = clock
        self._peers: dict[int, str] = {}
        self._found_at = float("-inf")

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        if self._clock() - self._found_at > LIFE_S:
            self._peers.clear()
        self._peers = {block: peer for block, peer in self._peers.items() if peer not in avoid}
        if any(block not in self._peers for block in span):
            self._remember(await self._look(span, avoid))
        return hops({block: self._peers[block] for block in span})

    async def _look(self, span: Span, avoid: Collection[str]) -> Route:
        if self._peers or avoid:
            return await self._find(span, avoid)
        try:
            return await self._find(self._whole, avoid)
        except MissingBlocks:
            # What is asked for may be there all the same.
            return await self._find(span, avoid)

    def _remember(self, route: Route) -> None:
        if not self._peers:
            self._found_at = self._clock()
        self._peers.update({block: hop.peer_id for hop in route for block in hop.span})


class ChosenPath:
    """The caller's own choice of servers, as a `find_route`. Nobody else is asked, so a server that fails ends the pass."""

    def __init__(self, path: Route) -> None:
        self._peers: dict[int, str] = {}
        for hop in path:
            if twice := [block for block in hop.span if block in self._peers]:
                raise LocalError(f"the path goes through block {twice[0]} twice")
            self._peers.update(dict.fromkeys(hop.span, hop.peer_id))

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        lacking = runs(block for block in span if block not in self._peers)
        if lacking:
            raise LocalError(f"the path that was chosen does not go through {lacking[0].in_words()}")
        chosen = {block: self._peers[block] for block in span}
        if failed := [peer for peer in chosen.values() if peer in avoid]:
            raise ChosenServerFailed(f"{failed[0]}, which was chosen for these blocks, does not serve them now")
        return hops(chosen)


class ChosenServerFailed(MissingBlocks):
    """Only the caller can choose another."""


def hops(peers: dict[int, str]) -> Route:
    """Neighbouring blocks of one peer as one hop; `peers` in the order of blocks."""
    grouped = [(peer, [block for block, _ in run]) for peer, run in groupby(peers.items(), key=lambda item: item[1])]
    return tuple(Hop(peer, Span(blocks[0], blocks[-1] + 1)) for peer, blocks in grouped)
