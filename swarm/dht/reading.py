"""DHT keys -> Readings. Every reading has one time limit; a key that nobody answered for is unread, not empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hivemind.dht.routing import DHTID
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time

from swarm.dht import bulk
from swarm.dht.node import Node
from swarm.dht.silence import Silence
from swarm.errors import BadRecord
from swarm.snapshot import Dropped, Entry, Reading, read_models
from swarm.wire.codec import decode, decode_dictionary
from swarm.wire.keys import MODELS_KEY, block_uid, looks_like_peer_id
from swarm.wire.records import ModelRecord

READ_TIMEOUT_S = 30.0
"""Reading 1,600 keys takes a second or two; a node that does not answer costs 5 s once."""

MAX_SUBKEYS = 20_000
"""Records under one key: forty times the servers of the largest swarm seen. A flood costs that key's surplus, nothing else."""


async def read_keys(
    node: Node,
    keys: Iterable[str],
    timeout_s: float = READ_TIMEOUT_S,
    heard: bulk.Heard | None = None,
    silence: Silence | None = None,
) -> Reading:
    """`silence`: who has not answered in this crawl, and is not asked. A key that is left with nobody to be asked is unread."""
    ids = {key: DHTID.generate(key) for key in dict.fromkeys(keys)}
    if not ids or not node.config.initial_peers:
        # A node that is alone in the world is asked only by itself: it knows what it holds.
        return Reading(_own(node, ids))
    replies = await bulk.find(node, ids.values(), timeout_s, heard, silence)
    decoding: dict[bytes, object] = {}
    entries: dict[str, list[Entry]] = {}
    now = get_dht_time()
    for key, dht_id in ids.items():
        found = _united(replies.results.get(dht_id, ()), decoding, now, every=key == MODELS_KEY)
        if found:
            entries[key] = found
    return Reading(entries, frozenset(key for key, dht_id in ids.items() if dht_id not in replies.results))


async def read_index(node: Node, timeout_s: float = READ_TIMEOUT_S) -> tuple[dict[str, ModelRecord], list[Dropped], bool]:
    """The models that the swarm announces, what was dropped, and whether the index could be read at all."""
    reading = await read_keys(node, [MODELS_KEY], timeout_s)
    models, dropped = read_models(reading)
    return models, dropped, not reading.unread


async def read_blocks(
    node: Node,
    models: Mapping[str, int],
    timeout_s: float = READ_TIMEOUT_S,
    heard: bulk.Heard | None = None,
    silence: Silence | None = None,
) -> dict[str, Reading]:
    """For each prefix with its number of blocks what stands under its block keys; all models share one pass."""
    keys = {prefix: [block_uid(prefix, block) for block in range(count)] for prefix, count in models.items()}
    reading = await read_keys(node, (key for listed in keys.values() for key in listed), timeout_s, heard, silence)
    return {
        prefix: Reading(
            {key: reading.entries[key] for key in listed if key in reading.entries},
            frozenset(key for key in listed if key in reading.unread),
        )
        for prefix, listed in keys.items()
    }


def _own(node: Node, ids: Mapping[str, DHTID]) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    for key, dht_id in ids.items():
        stored = node.dht.protocol.storage.get(dht_id)
        if stored is not None and not isinstance(stored.value, bytes):
            entries[key] = [
                Entry(subkey, _decoded(item.value, {}), item.expiration_time) for subkey, item in stored.value.items()
            ]
    return entries


def _united(
    results: Iterable[dht_pb2.FindResult], decoding: dict[bytes, object], now: float, every: bool = False
) -> list[Entry]:
    """What all nodes hold under one key: of each subkey the value that expires last, or with `every` each one that differs.

    A key that holds a plain value instead of a dictionary of subkeys gives one entry that says so, beside those of the others.
    """
    newest: dict[object, tuple[object, bytes, float]] = {}
    plain: Entry | None = None
    for result in results:
        if result.type == dht_pb2.NOT_FOUND or not result.value:
            continue
        try:
            items = decode_dictionary(result.value) if result.type == dht_pb2.FOUND_DICTIONARY else None
        except BadRecord as error:
            plain = Entry(None, error, result.expiration_time)
            continue
        if items is None:
            refused = BadRecord("shape", "a plain value stands where a dictionary of servers is due")
            plain = Entry(None, refused, result.expiration_time)
            continue
        for subkey, value, expires_at in items:
            name = subkey if isinstance(subkey, str) else repr(subkey)
            slot = (name, value) if every else name
            if expires_at > now and (slot not in newest or expires_at > newest[slot][2]):
                newest[slot] = (subkey, value, expires_at)
    kept, surplus = _capped(list(newest.values()))
    entries = [Entry(subkey, _decoded(value, decoding), expires_at) for subkey, value, expires_at in kept]
    if surplus:
        entries.append(Entry(None, BadRecord("too-many", f"{surplus:,} subkeys beyond {MAX_SUBKEYS:,}"), now + 1))
    return [*entries, plain] if plain is not None else entries


def _capped(items: list[tuple[object, bytes, float]]) -> tuple[list[tuple[object, bytes, float]], int]:
    """At most `MAX_SUBKEYS`, those first that may be servers or models, and how many are left out."""
    if len(items) > MAX_SUBKEYS:
        items.sort(key=lambda item: not looks_like_peer_id(item[0]))
    return items[:MAX_SUBKEYS], max(0, len(items) - MAX_SUBKEYS)


def _decoded(value: bytes, decoding: dict[bytes, object]) -> object:
    """The value or the BadRecord it ends in. A server writes the same bytes under each of its blocks."""
    if value not in decoding:
        try:
            decoding[value] = decode(value)
        except BadRecord as error:
            decoding[value] = error
    return decoding[value]
