"""A plain DHT peer by which others enter the swarm. It serves no blocks. A p2pd that is lost is replaced by one with the same
identity at the same address, as newcomers know no other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from blockserver.ready import write_ready_file
from blockserver.serving.presence import lasting_identity, with_present_port
from blockserver.serving.systemd import Systemd
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.errors import LocalError, RemoteError, Unreachable

log = logging.getLogger(__name__)

ALIVE_INTERVAL_S = 10.0


async def run_bootstrap(
    config: NodeConfig, ready_file: Path | None, stop: asyncio.Event, interval_s: float = ALIVE_INTERVAL_S
) -> None:
    """Until `stop` is set. Raises LocalError or RemoteError where it cannot begin."""
    systemd = Systemd()
    async with lasting_identity(config) as lasting:
        node = await start_node(lasting)
        lasting = await with_present_port(lasting, node)
        try:
            addresses = await node.addresses()
            for address in addresses:
                log.info("enter the swarm by --initial-peers %s", address)
            write_ready_file(ready_file, {"peer_id": node.peer_id, "pid": os.getpid(), "addresses": list(addresses)})
            systemd.ready(f"bootstrap peer {node.peer_id}")
            while not stop.is_set():
                systemd.alive()
                node = await _looked_after(node, lasting)
                await _either(stop, interval_s)
        finally:
            systemd.stopping()
            await node.stop()


async def _looked_after(node: Node, config: NodeConfig) -> Node:
    """The node, or the one that took its place. A replacement that fails is tried again at the next look."""
    try:
        await node.connected_addresses()
        await node.rejoin()
        return node
    except Unreachable as error:
        log.warning("%s; starting another one with the same identity", error)
        node.kill()
        await node.stop()
    try:
        replaced = await start_node(config)
    except (LocalError, RemoteError) as error:
        log.warning("p2pd did not start: %s; trying again", error)
        return node
    log.info("back in the swarm as %s", replaced.peer_id)
    return replaced


async def _either(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
