"""Block servers on an event loop of their own, so that what waits for them may be a plain function."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from hivemind.p2p import P2P

from blockserver.client.auto.causal_lm import DistributedCausalLM
from blockserver.client.auto.connection import Connection
from blockserver.client.auto.loading import distributed
from blockserver.client.model import RemoteModel
from blockserver.client.session import Patience
from blockserver.config import ServeConfig
from blockserver.model.facts import read_facts
from swarm.dht.background import BackgroundLoop
from swarm.wire.spans import Span
from tests import loopback
from tests.blockserver import living
from tests.blockserver.loopback import KnownServers, Serving, candidate, loopback_peer, serving

START_S = 120.0
"""Three servers on a busy machine."""
QUICK = Patience(attempts=4, first_pause_s=0.01, longest_pause_s=0.05)


@dataclass
class Swarm:
    """`addresses` of its bootstrap peer, and who serves what."""

    addresses: tuple[str, ...]
    prefix: str
    peers: dict[Span, str]


@contextmanager
def swarm(folder: Path, *cuts: int) -> Iterator[Swarm]:
    """A server for each run of blocks between the cuts."""
    loop = BackgroundLoop("servers")
    stack = AsyncExitStack()
    try:
        yield loop.run(_start(stack, folder, cuts), START_S)
    finally:
        loop.run(stack.aclose(), START_S)
        loop.stop()


async def _start(stack: AsyncExitStack, folder: Path, cuts: tuple[int, ...]) -> Swarm:
    facts = read_facts(folder)
    edges = [0, *cuts, facts.num_blocks]
    spans = [Span(start, end) for start, end in pairwise(edges)]
    [boot] = await stack.enter_async_context(loopback.nodes(1))
    for span in spans:
        made: ServeConfig = await living.config(
            boot,
            folder,
            block_indices=span,
            prefix=facts.prefix,
            cache_tokens=4_096,
            throughput=100.0,
            check_reachability=False,
        )
        await stack.enter_async_context(living.serving(made))
    reader = await stack.enter_async_context(loopback.reader_of(boot))
    seen = await living.until(reader, living.online(*spans), START_S, facts.prefix, facts.num_blocks)
    return Swarm(await boot.addresses(), facts.prefix, {server.span: server.peer_id for server in seen.servers})


class Handlers:
    """Servers without a DHT, and a client's peer that knows them: quick to start, for tests that harm some."""

    def __init__(self, folder: Path, loop: BackgroundLoop, client: P2P, servers: list[Serving]) -> None:
        self.servers = servers
        self.connection = Connection(loop)
        self.known = KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(servers)])
        self._folder = folder
        self._client = client
        self._loop = loop

    def model(self) -> DistributedCausalLM:
        """Over the known servers, in float32."""
        remote = RemoteModel.load(
            self._folder, self._client, self.known.find_route, prefix="tiny", dtype=torch.float32, patience=QUICK
        )
        return distributed(self._folder, self.connection, remote)

    def kill(self, server: Serving) -> None:
        """With its p2p daemon, as kill -9 does."""
        self._loop.run(server.p2p.shutdown(), START_S)


@contextmanager
def handlers(folder: Path, *spans: Span) -> Iterator[Handlers]:
    """The first of several servers with the same blocks is the faster one."""
    loop = BackgroundLoop("handlers")
    stack = AsyncExitStack()
    try:
        client, servers = loop.run(_serve(stack, folder, spans), START_S)
        yield Handlers(folder, loop, client, servers)
    finally:
        loop.run(stack.aclose(), START_S)
        loop.stop()


async def _serve(stack: AsyncExitStack, folder: Path, spans: Sequence[Span]) -> tuple[P2P, list[Serving]]:
    client = await loopback_peer(dht_mode="client")
    stack.push_async_callback(client.shutdown)
    starting = (stack.enter_async_context(serving(folder, span, "tiny", client)) for span in spans)
    return client, list(await asyncio.gather(*starting))
