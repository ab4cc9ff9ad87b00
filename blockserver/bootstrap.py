"""A plain DHT peer by which others enter the swarm. It serves no blocks."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from blockserver.ready import write_ready_file
from swarm.dht.node import NodeConfig, start_node

log = logging.getLogger(__name__)


async def run_bootstrap(config: NodeConfig, ready_file: Path | None, stop: asyncio.Event) -> None:
    node = await start_node(config)
    try:
        addresses = await node.addresses()
        for address in addresses:
            log.info("enter the swarm by --initial-peers %s", address)
        write_ready_file(ready_file, {"peer_id": node.peer_id, "pid": os.getpid(), "addresses": list(addresses)})
        await stop.wait()
    finally:
        await node.stop()
