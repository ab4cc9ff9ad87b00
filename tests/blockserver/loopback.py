"""Real libp2p peers on loopback that serve blocks, for tests. Nothing leaves the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hivemind.p2p import P2P, PeerID

from blockserver.compute.engine import Engine
from blockserver.model.blocks import load_span
from blockserver.rpc.handler import TransformerConnectionHandler
from swarm.routing import Candidate, Route, choose_route
from swarm.wire.spans import Span

VERSION = "2.3.0.dev2"
CACHE_TOKENS = 8_192


async def loopback_peer(**options: Any) -> P2P:
    return await P2P.create(
        host_maddrs=["/ip4/127.0.0.1/tcp/0"], nat_port_map=False, auto_nat=False, use_relay=False, **options
    )


@dataclass
class Serving:
    """One server of the test's swarm."""

    p2p: P2P
    engine: Engine
    handler: TransformerConnectionHandler

    @property
    def peer_id(self) -> str:
        return str(self.p2p.peer_id.to_base58())

    async def meet(self, other: P2P) -> None:
        """`other` learns this server's address, as it would from the DHT."""
        addresses = [address.decapsulate(f"/p2p/{self.peer_id}") for address in await self.p2p.get_visible_maddrs()]
        await other._client.connect(self.p2p.peer_id, addresses)

    @property
    def peer(self) -> PeerID:
        return self.p2p.peer_id


@asynccontextmanager
async def serving(
    folder: Path, span: Span, prefix: str, client: P2P, *, cache_tokens: int = CACHE_TOKENS
) -> AsyncIterator[Serving]:
    """A server of `span`, known to `client`."""
    p2p = await loopback_peer()
    engine = Engine(load_span(folder, span, torch.float32), cache_tokens)
    handler = TransformerConnectionHandler(p2p, prefix, engine, version=VERSION, dht_client_mode=False)
    server = Serving(p2p, engine, handler)
    try:
        await handler.start()
        await server.meet(client)
        yield server
    finally:
        engine.stop()
        await p2p.shutdown()


@dataclass
class KnownServers:
    """A stand-in for the DHT: what a client finds when it looks for a route, and how often it looked."""

    candidates: list[Candidate]
    looked: int = 0

    async def find_route(self, span: Span, avoid: Collection[str]) -> Route:
        self.looked += 1
        return choose_route(self.candidates, span, avoid)


def candidate(server: Serving, blocks_per_s: float = 100.0) -> Candidate:
    return Candidate(server.peer_id, server.engine.span, blocks_per_s)
