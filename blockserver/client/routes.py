"""What a session needs to know about servers: where to go, and whom to avoid for a while.

A router is shared by all sessions of a client, so that what one finds out saves the others the trouble. Any coroutine
`(span, peers to avoid) -> Route` will do as well: it is wrapped.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from swarm.errors import MissingBlocks
from swarm.routing import Bans, Candidate, Route, Wanted
from swarm.wire.spans import Span

FindRoute = Callable[[Span, Collection[str]], Awaitable[Route]]
"""Servers for these blocks without those peers, from the DHT as it is now. Raises MissingBlocks."""

MOST_LOOKS = 64
"""Times that a plain function is asked again because it named a peer that the session does not allow."""


@runtime_checkable
class Router(Protocol):
    """Where `find` raises MissingBlocks because of servers that failed, `forgive` lets it name them again. `page` is where
    people may look at the model."""

    page: str | None

    async def find(self, wanted: Wanted) -> Route: ...

    def failed(self, peer_id: str) -> None: ...

    def worked(self, peer_id: str) -> None: ...

    def forgive(self) -> None: ...

    def about(self, peer_id: str) -> Candidate | None: ...


@dataclass
class PlainRouter:
    """A function that finds routes, with bans of its own beside it."""

    find_route: FindRoute
    clock: Callable[[], float] = time.monotonic
    bans: Bans = field(default_factory=Bans)
    page: str | None = None

    async def find(self, wanted: Wanted) -> Route:
        avoid = set(wanted.blocked) | self.bans.in_force(self.clock())
        for _ in range(MOST_LOOKS):
            route = await self.find_route(wanted.span, frozenset(avoid))
            strangers = {hop.peer_id for hop in route if not wanted.admits(hop.peer_id)}
            if not strangers:
                return route
            avoid |= strangers
        raise MissingBlocks(f"no allowed server was found for {wanted.span.in_words()}", tuple(wanted.span))

    def failed(self, peer_id: str) -> None:
        self.bans.failed(peer_id, self.clock())

    def worked(self, peer_id: str) -> None:
        self.bans.worked(peer_id)

    def forgive(self) -> None:
        self.bans.forgive()

    def about(self, peer_id: str) -> Candidate | None:
        return None


def as_router(given: Router | FindRoute) -> Router:
    return given if isinstance(given, Router) else PlainRouter(given)
