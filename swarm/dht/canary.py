"""Can we still tell what stands in the DHT? The reader writes a key of its own and reads it back.

A p2pd that is dead or frozen answers quickly and wrongly; a reader cut off from the swarm finds every key empty. Neither of
them finds what was written a moment ago.
"""

from __future__ import annotations

import asyncio
import uuid

from hivemind.utils import get_dht_time

from swarm.dht.node import Node
from swarm.dht.reading import read_keys

CANARY_LIFE_S = 60.0
STORE_TIMEOUT_S = 10.0
READ_BACK_TIMEOUT_S = 10.0


def canary_key(node: Node) -> str:
    return f"_sepal.canary.{node.peer_id}"


async def sings(node: Node) -> bool:
    """Whether the node reads back what it has just written."""
    key, song = canary_key(node), uuid.uuid4().hex
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            stored = await node.dht.store(key, song, get_dht_time() + CANARY_LIFE_S, subkey=node.peer_id)
    except TimeoutError:
        return False
    if not stored:
        return False
    reading = await read_keys(node, [key], READ_BACK_TIMEOUT_S)
    return any(entry.subkey == node.peer_id and entry.value == song for entry in reading.entries.get(key, ()))
