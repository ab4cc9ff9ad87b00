"""What is remembered of routes, for how long, and a path that is the caller's own."""

from __future__ import annotations

import pytest

from blockserver.client.discovery import RouteFinder
from blockserver.client.passes.route_memory import LIFE_S, ChosenPath, RouteMemory, Spread
from blockserver.client.routes import as_router
from swarm.errors import LocalError, MissingBlocks
from swarm.routing import Candidate, Hop, Route, Wanted, choose_route
from swarm.wire.spans import Span

WHOLE = Span(0, 6)


class Servers:
    """A router that counts how often it looks."""

    def __init__(self, **spans: tuple[int, int]) -> None:
        self.candidates = [Candidate(name, Span(*span)) for name, span in spans.items()]
        self.looked = 0
        self.avoided: set[str] = set()
        self.page: str | None = None

    async def find(self, wanted: Wanted) -> Route:
        self.looked += 1
        return choose_route(self.candidates, wanted.span, {*self.avoided, *wanted.blocked})

    def failed(self, peer_id: str) -> None:
        self.avoided.add(peer_id)

    def worked(self, peer_id: str) -> None:
        self.avoided.discard(peer_id)

    def forgive(self) -> None:
        self.avoided.clear()

    def about(self, peer_id: str) -> Candidate | None:
        return next((candidate for candidate in self.candidates if candidate.peer_id == peer_id), None)


async def test_every_block_is_found_by_one_look() -> None:
    servers = Servers(a=(0, 3), b=(3, 6))
    memory = RouteMemory(servers, WHOLE)
    for block in WHOLE:
        [hop] = await memory.find(Wanted(Span(block, block + 1)))
        assert hop == Hop("a" if block < 3 else "b", Span(block, block + 1))
    assert await memory.find(Wanted(Span(1, 5))) == (Hop("a", Span(1, 3)), Hop("b", Span(3, 5)))
    assert servers.looked == 1


async def test_it_looks_again_after_a_while() -> None:
    now = 0.0
    servers = Servers(a=(0, 6))
    memory = RouteMemory(servers, WHOLE, clock=lambda: now)
    await memory.find(Wanted(WHOLE))
    now = LIFE_S
    await memory.find(Wanted(WHOLE))
    assert servers.looked == 1
    now = LIFE_S + 1
    await memory.find(Wanted(WHOLE))
    assert servers.looked == 2


async def test_who_fails_is_forgotten_and_who_did_not_is_kept() -> None:
    servers = Servers(a=(0, 3), b=(3, 6), c=(3, 6))
    memory = RouteMemory(servers, WHOLE)
    assert (await memory.find(Wanted(WHOLE)))[1].peer_id == "b"
    memory.failed("b")
    assert await memory.find(Wanted(WHOLE)) == (Hop("a", Span(0, 3)), Hop("c", Span(3, 6)))
    assert servers.looked == 2


async def test_who_is_not_wanted_is_not_remembered_either() -> None:
    servers = Servers(b=(0, 6), c=(0, 6))
    memory = RouteMemory(servers, WHOLE)
    await memory.find(Wanted(WHOLE))
    assert await memory.find(Wanted(WHOLE, blocked=frozenset({"b"}))) == (Hop("c", WHOLE),)


async def test_a_hole_elsewhere_does_not_matter() -> None:
    memory = RouteMemory(Servers(a=(0, 3)), WHOLE)
    assert await memory.find(Wanted(Span(1, 3))) == (Hop("a", Span(1, 3)),)
    with pytest.raises(MissingBlocks, match="block 3 has no server"):
        await memory.find(Wanted(Span(2, 4)))


def test_all_are_routers_to_a_session() -> None:
    servers = Servers()
    for router in (servers, RouteMemory(servers, WHOLE), Spread(servers), ChosenPath(())):
        assert as_router(router) is router


async def test_training_draws_where_the_router_can_and_takes_what_there_is_otherwise() -> None:
    servers = Servers(a=(0, 6))
    assert await Spread(servers).find(Wanted(WHOLE)) == (Hop("a", WHOLE),)

    class Finder(RouteFinder):
        def __init__(self) -> None:
            self.page = None

        async def find_for_training(self, wanted: Wanted) -> Route:
            return (Hop("drawn", wanted.span),)

    assert await Spread(Finder()).find(Wanted(WHOLE)) == (Hop("drawn", WHOLE),)


async def test_a_chosen_path_is_the_only_one() -> None:
    path = ChosenPath((Hop("a", Span(0, 2)), Hop("b", Span(2, 6))))
    assert await path.find(Wanted(Span(1, 4))) == (Hop("a", Span(1, 2)), Hop("b", Span(2, 4)))
    path.failed("b")
    with pytest.raises(MissingBlocks, match="b, which was chosen for block 2, does not serve it now"):
        await path.find(Wanted(Span(1, 4)))
    assert await path.find(Wanted(Span(0, 2))) == (Hop("a", Span(0, 2)),)
    path.forgive()
    assert len(await path.find(Wanted(WHOLE))) == 2


async def test_a_path_that_cannot_be_gone_is_refused() -> None:
    with pytest.raises(LocalError, match="goes through block 1 twice"):
        ChosenPath((Hop("a", Span(0, 2)), Hop("b", Span(1, 3))))
    with pytest.raises(LocalError, match="does not go through blocks 0–1"):
        await ChosenPath((Hop("a", Span(2, 4)),)).find(Wanted(Span(0, 4)))
