"""Finds routes for a client: what the DHT says now and how far servers are, turned into candidates for `swarm.routing`.

Announcements are believed here, but what a server says itself when it is called counts more. A server that fails is banned for
a while by the session that found it out, for all sessions of this finder.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from blockserver.client.no_server import broken_since, no_server, page_of
from blockserver.rpc.pings import Pings
from swarm.dht.node import Node
from swarm.dht.reading import read_blocks
from swarm.errors import MissingBlocks, Unreachable
from swarm.routing import Bans, Candidate, Route, Wanted, choose_route, spread_route
from swarm.snapshot import Model, PeerState, assemble
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span, runs

VIEW_LIFE_S = 30.0
"""What was read from the DHT serves for so long. Petals' client reads once a minute, and only then."""
MOST_DOUBTS = 2
"""Servers of one view that failed: then it is read anew."""
PINGS_LIFE_S = 120.0
"""Ways do not change quickly; Petals' servers announce theirs on this period."""
MOST_PINGED = 64
"""Calls at the start of a client, the fastest servers first; others count as far away as Petals takes them to be."""
PINGS_WAIT_S = 1.5
"""A first route waits for so long for the answers; what comes later counts for the next one."""
UNREACHED_S = 10.0
"""What a server that does not answer is taken to need: it is used where there is no other."""


_Choose = Callable[[list[Candidate]], Route]


class RouteFinder:
    """A session's router. `monitor` is the address of a Sepal site, for the sentence that says what is missing.

    Also callable as `(span, peers to avoid) -> route`. `seed` is for the routes of training passes.
    """

    def __init__(
        self,
        node: Node,
        prefix: str,
        num_blocks: int,
        *,
        allowed: Collection[str] | None = None,
        blocked: Collection[str] = (),
        monitor: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.bans = Bans()
        self.page = page_of(monitor, prefix) if monitor else None
        self._node, self._prefix, self._num_blocks, self._monitor = node, prefix, num_blocks, monitor
        self._allowed = None if allowed is None else frozenset(allowed)
        self._blocked = frozenset(blocked)
        self._random = random.Random(seed)  # noqa: S311 - spreads load, keeps no secret
        self._pings = Pings(node.p2p)
        self._pinging: asyncio.Task[None] | None = None
        self._pinged_at = -math.inf
        self._seen: Model | None = None
        self._seen_at = -math.inf
        self._doubts = 0
        self._missing_since: dict[int, float] = {}

    # -------------------------------------------------------------------------------------------------- as a router

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        """From the DHT as it is now."""
        self._seen = None
        return await self.find(Wanted(span, blocked=frozenset(avoid)))

    async def find(self, wanted: Wanted) -> Route:
        """The chain with the least expected latency."""
        return await self._found(
            wanted,
            lambda usable: choose_route(usable, wanted.span, cache_tokens=wanted.cache_tokens, push=wanted.push),
        )

    async def find_for_training(self, wanted: Wanted) -> Route:
        """A chain drawn by rate, so that many passes at once are spread over the servers."""
        return await self._found(wanted, lambda usable: spread_route(usable, wanted.span, self._random.random))

    def failed(self, peer_id: str) -> None:
        self._doubts += 1
        self.bans.failed(peer_id, time.monotonic())

    def worked(self, peer_id: str) -> None:
        self.bans.worked(peer_id)

    def forgive(self) -> None:
        self.bans.forgive()

    def about(self, peer_id: str) -> Candidate | None:
        """What is known of a server, from the last view."""
        known = self.candidates(self._seen) if self._seen else []
        return next((candidate for candidate in known if candidate.peer_id == peer_id), None)

    # ------------------------------------------------------------------------------------------------ what is known

    async def view(self) -> Model:
        """The model as it stands in the DHT now."""
        readings = await read_blocks(self._node, {self._prefix: self._num_blocks})
        record = ModelRecord(self._num_blocks, None)
        model = assemble("", time.time(), {self._prefix: record}, readings, visits=None).models[0]
        self._seen, self._seen_at, self._doubts = model, time.monotonic(), 0
        return model

    def candidates(self, model: Model) -> list[Candidate]:
        """Servers that are online, by their records and by what they said when they were called."""
        now = time.time()
        return [
            self._measured(announced)
            for announced in candidates(model, now)
            if (self._allowed is None or announced.peer_id in self._allowed) and announced.peer_id not in self._blocked
        ]

    def _measured(self, announced: Candidate) -> Candidate:
        round_trip_s = self._pings.known(announced.peer_id)
        if round_trip_s is None:
            return announced
        if math.isinf(round_trip_s):
            return replace(announced, round_trip_s=UNREACHED_S)
        said = self._pings.said.get(announced.peer_id, {})
        sessions, cache = _count(said.get("sessions_active")), _count(said.get("cache_tokens_available"))
        return replace(
            announced,
            round_trip_s=round_trip_s,
            sessions=sessions or 0,
            cache_tokens_left=announced.cache_tokens_left if cache is None else cache,
        )

    # ------------------------------------------------------------------------------------------------------ within

    async def _found(self, wanted: Wanted, choose: _Choose) -> Route:
        fresh = self._seen is None or time.monotonic() - self._seen_at > VIEW_LIFE_S or self._doubts >= MOST_DOUBTS
        model = await self.view() if fresh or self._seen is None else self._seen
        await self._have_pings(model)
        try:
            return self._chosen(model, wanted, choose)
        except MissingBlocks:
            if fresh:
                raise await self._explained(model, wanted) from None
        model = await self.view()
        try:
            return self._chosen(model, wanted, choose)
        except MissingBlocks:
            raise await self._explained(model, wanted) from None

    def _chosen(self, model: Model, wanted: Wanted, choose: _Choose) -> Route:
        banned = self.bans.in_force(time.monotonic())
        known = self.candidates(model)
        route = choose([c for c in known if c.peer_id not in banned and wanted.admits(c.peer_id)])
        for block in wanted.span:
            self._missing_since.pop(block, None)
        return route

    async def _explained(self, model: Model, wanted: Wanted) -> MissingBlocks | Unreachable:
        banned = self.bans.in_force(time.monotonic())
        usable = [c for c in self.candidates(model) if c.peer_id not in banned and wanted.admits(c.peer_id)]
        missing = [block for block in wanted.span if not any(block in candidate.span for candidate in usable)]
        unread = runs(block for block in missing if block in model.unread_blocks)
        if unread:
            await self._node.check_alive()
            return Unreachable(f"the DHT did not answer for {unread[0].in_words()}")
        now = time.time()
        since = min(self._missing_since.setdefault(block, now) for block in missing)
        if self._monitor is not None:
            since = min(since, await broken_since(self._monitor, self._prefix) or since)
        return no_server(missing, since, now=now, page=self.page)

    async def _have_pings(self, model: Model) -> None:
        """Waits for the first ones only."""
        if self._pinging is None and time.monotonic() - self._pinged_at > PINGS_LIFE_S:
            first = math.isinf(self._pinged_at)
            self._pinged_at = time.monotonic()
            self._pinging = asyncio.create_task(self._ping(model))
            if first:
                await asyncio.wait({self._pinging}, timeout=PINGS_WAIT_S)

    async def _ping(self, model: Model) -> None:
        try:
            fastest = sorted(candidates(model, time.time()), key=lambda candidate: candidate.block_s)
            await self._pings.measure([candidate.peer_id for candidate in fastest[:MOST_PINGED]])
        finally:
            self._pinging = None

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pinging


def candidates(model: Model, now: float) -> list[Candidate]:
    """As announced. A record that has run out since it was read does not count."""
    return [
        Candidate(
            server.peer_id,
            server.span,
            server.record.inference_rps,
            cache_tokens_left=server.record.cache_tokens_left,
            next_pings=server.record.next_pings,
            dtype=server.record.torch_dtype,
            quant_type=server.record.quant_type,
        )
        for server in model.servers
        if server.state is PeerState.ONLINE and server.expires_at > now
    ]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
