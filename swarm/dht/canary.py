"""Can we still tell what stands in the DHT? The reader writes a key of its own and reads it back.

A p2pd that is dead or frozen answers quickly and wrongly; a reader cut off from the swarm finds every key empty. Neither of
them finds what was written a moment ago.
"""

from __future__ import annotations

import asyncio
import heapq
import uuid

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.utils import get_dht_time

from swarm.dht.bulk import REPLICAS
from swarm.dht.node import Node
from swarm.dht.reading import read_keys
from swarm.dht.silence import Silence
from swarm.wire.codec import encode

CANARY_LIFE_S = 60.0
STORE_TIMEOUT_S = 5.0
READ_BACK_TIMEOUT_S = 15.0


def canary_key(node: Node) -> str:
    return f"_sepal.canary.{node.peer_id}"


async def sings(node: Node, silence: Silence | None = None) -> bool:
    """Whether the node reads back what it has just written.

    It is written at the nodes that are known to be nearest, all at once, and not by walking the DHT: after a mass loss that
    would take one time limit after another, and a loss that is real could not be told from a reader that is sick.
    """
    key, song = canary_key(node), uuid.uuid4().hex
    dht_id = DHTID.generate(key)
    silent = silence if silence is not None else Silence()
    known = {who: peer for who, peer in node.dht.protocol.routing_table.uid_to_peer_id.items() if peer not in silent}
    nearest = heapq.nsmallest(REPLICAS, known, key=dht_id.xor_distance)
    written = await asyncio.gather(*(_write(node, known[who], dht_id, song) for who in nearest))
    if not any(written):
        return False
    reading = await read_keys(node, [key], READ_BACK_TIMEOUT_S, silence=silent)
    return any(entry.subkey == node.peer_id and entry.value == song for entry in reading.entries.get(key, ()))


async def _write(node: Node, peer: PeerID, dht_id: DHTID, song: str) -> bool:
    expires_at = get_dht_time() + CANARY_LIFE_S
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            stored = await node.dht.protocol.call_store(peer, [dht_id], [encode(song)], [expires_at], [node.peer_id])
    except TimeoutError:
        return False
    return bool(stored and stored[0])
