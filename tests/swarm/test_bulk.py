"""Reading many keys where there are more nodes than a record is written to: the nearest are asked, and nothing is missed."""

from __future__ import annotations

import asyncio

import pytest
from hivemind.dht.routing import DHTID

from swarm.dht import bulk
from swarm.dht.node import Node
from swarm.dht.reading import read_keys
from swarm.wire.codec import encode
from tests.loopback import nodes, plant, reader_of
from tests.swarms import peer_id

NODES = 9
TORN, EVEN = [f"m.{block}" for block in range(6)], [f"n.{block}" for block in range(4)]
VALUE = encode((2, 10.0, {"start_block": 0, "end_block": 6}))
HELD_BY = {"everywhere": {0, 1, 2, 3, 4}, "not-first": {1, 3}, "last-two": {3, 4}, "last": {4}, "second-only": {1}}
"""Whom of the five nodes nearest to a key a record reached. The first three differ, so that all five are asked."""


def nearest(swarm: list[Node], key: str) -> list[Node]:
    distance = DHTID.generate(key).xor_distance
    return sorted(swarm, key=lambda node: distance(node.dht.node_id))


async def put(swarm: list[Node], key: str, name: str, places: set[int]) -> None:
    close = nearest(swarm, key)
    for place in places:
        writer = swarm[0] if close[place] is not swarm[0] else swarm[1]
        assert await plant(writer, close[place], key, peer_id(name), VALUE)


async def answers(reader: Node, keys: list[str]) -> set[int]:
    """How many nodes answered for a key, over all keys."""
    found = await bulk.find(reader, [DHTID.generate(key) for key in keys], 30.0)
    return {len(results) for results in found.results.values()}


@pytest.mark.slow
async def test_the_nearest_nodes_are_asked_as_far_as_they_differ_and_no_record_is_missed() -> None:
    async with nodes(NODES) as swarm:
        puts = [put(swarm, key, name, places) for key in TORN for name, places in HELD_BY.items()]
        await asyncio.gather(*puts, *(put(swarm, key, "everywhere", {0, 1, 2, 3, 4}) for key in EVEN))
        async with reader_of(swarm[0]) as reader:
            assert (await read_keys(reader, TORN + EVEN)).unread == frozenset(), "it meets whom it does not know yet"
            known = reader.dht.protocol.routing_table.uid_to_peer_id
            assert len(known) > bulk.REPLICAS, "more nodes than any record is written to"
            reading = await read_keys(reader, TORN + EVEN)
            assert reading.unread == frozenset()
            for key in TORN:
                found = {entry.subkey for entry in reading.entries[key]}
                assert found == {peer_id(name) for name in HELD_BY}, key
            for key in EVEN:
                assert {entry.subkey for entry in reading.entries[key]} == {peer_id("everywhere")}
            assert await answers(reader, TORN) == {bulk.REPLICAS}, "all five, and nobody else"
            assert await answers(reader, EVEN) == {bulk.FIRST_REPLICAS}, "the nearest three agree"
