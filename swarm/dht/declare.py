"""A server's announcement -> DHT keys, as Petals writes it: one record under each block, and the model's entry in the index."""

from __future__ import annotations

from hivemind.utils import get_dht_time

from swarm.dht.node import Node
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord, ServerRecord
from swarm.wire.spans import Span

MIN_LIFE_S = 60.0
"""Petals' lower limit of a record's life."""


def record_life_s(update_period_s: float) -> float:
    """A record outlives two missed announcements, so that one late announcement opens no hole."""
    return max(2 * update_period_s, MIN_LIFE_S)


async def declare_server(node: Node, prefix: str, span: Span, record: ServerRecord, life_s: float) -> int:
    """Writes the record under every block of `span`; the number of keys that some peer stored it under."""
    keys = [block_uid(prefix, block) for block in span]
    stored = await node.dht.store_many(
        keys, [record.to_wire()] * len(keys), get_dht_time() + life_s, subkeys=[node.peer_id] * len(keys), num_workers=32
    )
    return sum(bool(ok) for ok in stored.values())


async def declare_model(node: Node, prefix: str, record: ModelRecord, life_s: float) -> bool:
    """Writes the model's entry in the index. A prefix that starts with `_` is private and is kept out of it."""
    if prefix.startswith("_"):
        return False
    stored = await node.dht.store(MODELS_KEY, record.to_wire(), get_dht_time() + life_s, subkey=prefix)
    return bool(stored)
