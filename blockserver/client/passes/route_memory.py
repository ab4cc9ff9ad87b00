"""Routers for passes without a session: one remembers who serves which block, one spreads, one knows only a path.

Looking at every boundary takes a pass for each block, training one after another; each would read the DHT anew. Knows peers of
blocks; not what is asked of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from blockserver.client.discovery import RouteFinder
from blockserver.client.routes import Router
from swarm.errors import LocalError, MissingBlocks
from swarm.routing import Candidate, Hop, Route, Wanted
from swarm.wire.spans import Span, runs

LIFE_S = 60.0
"""As long as Petals' client goes without reading the DHT again; who fails is forgotten at once."""


class RouteMemory:
    """Asks `router` for the whole model where it can, so that passes over single blocks share few servers."""

    def __init__(self, router: Router, whole: Span, clock: Callable[[], float] = time.monotonic) -> None:
        self.page = router.page
        self._router = router
        self._whole = whole
        self._clock = clock
        self._peers: dict[int, str] = {}
        self._found_at = float("-inf")

    def about(self, peer_id: str) -> Candidate | None:
        return self._router.about(peer_id)

    async def find(self, wanted: Wanted) -> Route:
        if self._clock() - self._found_at > LIFE_S:
            self._peers.clear()
        if any(block not in self._peers or not wanted.admits(self._peers[block]) for block in wanted.span):
            self._remember(await self._look(wanted))
        return hops({block: self._peers[block] for block in wanted.span})

    def failed(self, peer_id: str) -> None:
        self._peers = {block: peer for block, peer in self._peers.items() if peer != peer_id}
        self._router.failed(peer_id)

    def worked(self, peer_id: str) -> None:
        self._router.worked(peer_id)

    def forgive(self) -> None:
        self._router.forgive()

    async def _look(self, wanted: Wanted) -> Route:
        if self._peers:
            return await self._router.find(wanted)
        try:
            return await self._router.find(replace(wanted, span=self._whole))
        except MissingBlocks:
            # What is asked for may be there all the same.
            return await self._router.find(wanted)

    def _remember(self, route: Route) -> None:
        if not self._peers:
            self._found_at = self._clock()
        self._peers.update({block: hop.peer_id for hop in route for block in hop.span})


class ChosenPath:
    """The caller's own choice of servers. Nobody else is asked: one that fails is asked again for a while, and then it ends."""

    def __init__(self, path: Route) -> None:
        self.page: str | None = None
        self._peers: dict[int, str] = {}
        self._failed: set[str] = set()
        for hop in path:
            if twice := [block for block in hop.span if block in self._peers]:
                raise LocalError(f"the path goes through block {twice[0]} twice")
            self._peers.update(dict.fromkeys(hop.span, hop.peer_id))

    async def find(self, wanted: Wanted) -> Route:
        lacking = runs(block for block in wanted.span if block not in self._peers)
        if lacking:
            raise LocalError(f"the path that was chosen does not go through {lacking[0].in_words()}")
        chosen = {block: self._peers[block] for block in wanted.span}
        out = [block for block, peer in chosen.items() if peer in self._failed or not wanted.admits(peer)]
        if out:
            raise MissingBlocks(f"{chosen[out[0]]}, which was chosen for block {out[0]}, does not serve it now", tuple(out))
        return hops(chosen)

    def failed(self, peer_id: str) -> None:
        self._failed.add(peer_id)

    def worked(self, peer_id: str) -> None:
        self._failed.discard(peer_id)

    def forgive(self) -> None:
        self._failed.clear()

    def about(self, peer_id: str) -> Candidate | None:
        return None


class Spread:
    """For training: routes drawn by rate where `router` can do that, so that many passes use all servers."""

    def __init__(self, router: Router) -> None:
        self.page = router.page
        self._router = router

    async def find(self, wanted: Wanted) -> Route:
        if isinstance(self._router, RouteFinder):
            return await self._router.find_for_training(wanted)
        return await self._router.find(wanted)

    def failed(self, peer_id: str) -> None:
        self._router.failed(peer_id)

    def worked(self, peer_id: str) -> None:
        self._router.worked(peer_id)

    def forgive(self) -> None:
        self._router.forgive()

    def about(self, peer_id: str) -> Candidate | None:
        return self._router.about(peer_id)


def hops(peers: dict[int, str]) -> Route:
    """Neighbouring blocks of one peer as one hop; `peers` in the order of blocks."""
    grouped = [(peer, [block for block, _ in run]) for peer, run in groupby(peers.items(), key=lambda item: item[1])]
    return tuple(Hop(peer, Span(blocks[0], blocks[-1] + 1)) for peer, blocks in grouped)
