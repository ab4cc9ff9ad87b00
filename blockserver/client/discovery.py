"""Finds routes for a client: what the DHT says now, turned into candidates for `swarm.routing`.

Announcements are believed here; a server that then fails is avoided by the session that found it out.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from swarm.dht.node import Node
from swarm.dht.reading import read_blocks
from swarm.errors import MissingBlocks, Unreachable
from swarm.routing import Candidate, Route, choose_route
from swarm.snapshot import Model, PeerState, assemble
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span, runs


class RouteFinder:
    """Callable as a session's `find_route`. Reads the DHT anew each time: routes are asked for when one has just failed."""

    def __init__(self, node: Node, prefix: str, num_blocks: int) -> None:
        self._node = node
        self._prefix = prefix
        self._num_blocks = num_blocks

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        model = await self.view()
        if model.unread_blocks:
            await self._node.check_alive()
        try:
            return choose_route(candidates(model), span, avoid)
        except MissingBlocks as missing:
            unread = runs(block for block in missing.blocks if block in model.unread_blocks)
            if unread:
                raise Unreachable(f"the DHT did not answer for {unread[0].in_words()}") from missing
            raise

    async def view(self) -> Model:
        readings = await read_blocks(self._node, {self._prefix: self._num_blocks})
        record = ModelRecord(self._num_blocks, None)
        return assemble("", time.time(), {self._prefix: record}, readings, visits=None).models[0]


def candidates(model: Model) -> list[Candidate]:
    return [
        Candidate(server.peer_id, server.span, server.record.inference_rps)
        for server in model.servers
        if server.state is PeerState.ONLINE
    ]
