"""DHT keys -> Readings. Every look-up has a time limit; a key that nobody answered for is unread, not empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from hivemind.dht.routing import DHTID
from hivemind.utils.timed_storage import ValueWithExpiration

from swarm.dht.node import Node
from swarm.dht.tolerant import Undecodable
from swarm.errors import BadRecord
from swarm.snapshot import Dropped, Entry, Reading, read_models
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord

READ_TIMEOUT_S = 30.0
"""A look-up asks a handful of peers, each with a limit of 3 s."""

MAX_SUBKEYS = 2_048
"""Records under one key: four times the servers of the largest swarm seen. A flood costs that key's surplus, nothing else."""

_LATEST = float("inf")
"""As `sufficient_expiration_time`: unite the dictionaries of all nodes asked, instead of taking the first."""


async def read_keys(node: Node, keys: Iterable[str], timeout_s: float = READ_TIMEOUT_S) -> Reading:
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        return Reading({})
    started = time.monotonic()
    futures = await node.dht.get_many(wanted, _LATEST, return_futures=True)
    await asyncio.wait(futures.values(), timeout=timeout_s)
    entries: dict[str, list[Entry]] = {}
    unread: set[str] = set()
    for key, future in futures.items():
        if not future.done():
            future.cancel()
            unread.add(key)
        elif future.result() is not None:
            entries[key] = _entries(future.result())
        elif node.config.initial_peers and node.answered_at.get(DHTID.generate(key).to_bytes(), 0.0) < started:
            unread.add(key)
    return Reading(entries, frozenset(unread))


async def read_index(node: Node, timeout_s: float = READ_TIMEOUT_S) -> tuple[dict[str, ModelRecord], list[Dropped], bool]:
    """The models that the swarm announces, what was dropped, and whether the index could be read at all."""
    reading = await read_keys(node, [MODELS_KEY], timeout_s)
    models, dropped = read_models(reading)
    return models, dropped, not reading.unread


async def read_blocks(node: Node, models: Mapping[str, int], timeout_s: float = READ_TIMEOUT_S) -> dict[str, Reading]:
    """For each prefix with its number of blocks what stands under its block keys; all models share one pass."""
    keys = {prefix: [block_uid(prefix, block) for block in range(count)] for prefix, count in models.items()}
    reading = await read_keys(node, (key for listed in keys.values() for key in listed), timeout_s)
    return {
        prefix: Reading(
            {key: reading.entries[key] for key in listed if key in reading.entries},
            frozenset(key for key in listed if key in reading.unread),
        )
        for prefix, listed in keys.items()
    }


def _entries(found: ValueWithExpiration[Any]) -> list[Entry]:
    """A key that holds a plain value instead of a dictionary of subkeys gives one entry that says so."""
    value, expires_at = found.value, found.expiration_time
    if not isinstance(value, dict):
        return [Entry(None, BadRecord("shape", "a plain value stands where a dictionary of servers is due"), expires_at)]
    listed = [
        Entry(subkey, item.value.error if isinstance(item.value, Undecodable) else item.value, item.expiration_time)
        for subkey, item in list(value.items())[:MAX_SUBKEYS]
    ]
    surplus = len(value) - len(listed)
    if surplus > 0:
        listed.append(Entry(None, BadRecord("too-many", f"{surplus:,} subkeys beyond {MAX_SUBKEYS:,}"), expires_at))
    return listed
