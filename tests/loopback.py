"""A DHT of several real nodes on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator

from hivemind.dht.routing import DHTID
from hivemind.utils import get_dht_time

from swarm.dht.background import note_in_one_line
from swarm.dht.node import Node, NodeConfig, start_node


@contextlib.asynccontextmanager
async def nodes(count: int) -> AsyncIterator[list[Node]]:
    """The first is the bootstrap peer of the others."""
    # For tests that kill them: what hivemind leaves behind then is noted, and neither printed nor in pytest's way.
    asyncio.get_running_loop().set_exception_handler(note_in_one_line)
    async with contextlib.AsyncExitStack() as stack:
        started: list[Node] = []
        for _ in range(count):
            addresses = await started[0].addresses() if started else ()
            started.append(await start_node(NodeConfig(initial_peers=addresses)))
            stack.push_async_callback(started[-1].stop)
        yield started


@contextlib.asynccontextmanager
async def reader_of(node: Node) -> AsyncIterator[Node]:
    """A client-mode node, as the crawler uses one."""
    reader = await start_node(NodeConfig(initial_peers=await node.addresses(), client_mode=True))
    try:
        yield reader
    finally:
        await reader.stop()


async def plant(writer: Node, at: Node, key: str, subkey: object, value: bytes, life_s: float = 60.0) -> bool:
    """Stores raw bytes under a key at one node, as any stranger can. A `subkey` of None replaces the key's dictionary."""
    expires_at = get_dht_time() + life_s
    stored = await writer.dht.protocol.call_store(
        at.p2p.peer_id, [DHTID.generate(key)], [value], [expires_at], None if subkey is None else [subkey]
    )
    return bool(stored and stored[0])


@contextlib.contextmanager
def frozen(*some: Node) -> Iterator[None]:
    """Their p2pds: connections stay open, and nothing comes out of them."""
    pids = [node.p2p._child.pid for node in some]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
