"""A whole gateway as it runs in production, in front of a server that it finds in a real DHT on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockserver.gateway.config import GatewayConfig
from blockserver.gateway.running import run_gateway
from swarm.wire.spans import Span
from tests.blockserver import living
from tests.blockserver.living import eventually
from tests.loopback import nodes

NUM_BLOCKS = 6
LIMIT_S = 180.0


@dataclass
class Living:
    url: str
    leave: asyncio.Event
    """Set it, and the server leaves the swarm in order."""


@contextlib.asynccontextmanager
async def living_gateway(model: Path, scratch: Path, **settings: Any) -> AsyncIterator[Living]:
    """`model` is the folder of one that speaks, with six blocks."""
    ready, served = scratch / "gateway.json", scratch / "server.json"
    async with nodes(1) as [boot]:
        of_server = await living.config(
            boot, model, num_blocks=NUM_BLOCKS, block_indices=Span(0, NUM_BLOCKS), ready_file=served
        )
        async with living.serving(of_server) as leave:
            await eventually(served.exists, LIMIT_S)
            config = GatewayConfig(
                model=model,
                initial_peers=await boot.addresses(),
                port=0,
                site="http://monitor.test",
                ready_file=ready,
                **settings,
            )
            stop = asyncio.Event()
            task = asyncio.create_task(run_gateway(config, stop))
            try:
                await eventually(lambda: ready.exists() or task.done(), LIMIT_S)
                if task.done():
                    task.result()
                yield Living(json.loads(ready.read_text())["url"], leave)
            finally:
                stop.set()
                await asyncio.wait_for(task, LIMIT_S)


@contextlib.contextmanager
def living_gateway_beside(model: Path, scratch: Path) -> Iterator[str]:
    """On a thread with a loop of its own, for tests that block theirs. Its address."""
    loop = asyncio.new_event_loop()
    stop, started, said = asyncio.Event(), threading.Event(), []

    async def run() -> None:
        async with living_gateway(model, scratch) as gateway:
            said.append(gateway.url)
            started.set()
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            started.set()

    thread = threading.Thread(target=work, name="gateway")
    thread.start()
    try:
        assert started.wait(2 * LIMIT_S) and said, "the gateway did not start"
        yield said[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LIMIT_S)
        loop.close()
