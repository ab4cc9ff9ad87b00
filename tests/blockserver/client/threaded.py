"""Block servers on an event loop of their own, so that what waits for them may be a plain function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from blockserver.config import ServeConfig
from blockserver.model.facts import read_facts
from swarm.dht.background import BackgroundLoop
from swarm.wire.spans import Span
from tests import loopback
from tests.blockserver import living

START_S = 120.0
"""Three servers on a busy machine."""


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
    spans = [Span(start, end) for start, end in zip(edges, edges[1:], strict=False)]
    [boot] = await stack.enter_async_context(loopback.nodes(1))
    for span in spans:
        made: ServeConfig = await living.config(
            boot, folder, block_indices=span, prefix=facts.prefix, cache_tokens=4_096, throughput=100.0, check_reachability=False
        )
        await stack.enter_async_context(living.serving(made))
    reader = await stack.enter_async_context(loopback.reader_of(boot))
    seen = await living.until(reader, living.online(*spans), START_S, facts.prefix, facts.num_blocks)
    return Swarm(await boot.addresses(), facts.prefix, {server.span: server.peer_id for server in seen.servers})
