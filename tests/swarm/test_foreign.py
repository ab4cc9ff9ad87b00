"""One node of the DHT that answers nonsense costs nobody else an answer."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest
from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from swarm.dht import bulk, entrances
from swarm.dht.foreign import node_id_of
from swarm.dht.silence import Silence
from tests.swarms import peer_id

NONSENSE = [b"\xff" * 21, b"\x00" * 21, os.urandom(4_096), b"", b"\x01"]
KEYS = [DHTID.generate(f"key {n}") for n in range(300)]


def test_what_is_no_id_is_none_and_what_hivemind_writes_is_one() -> None:
    own = DHTID.generate()
    assert node_id_of(own.to_bytes()) == own
    assert node_id_of(b"") is None and node_id_of(b"\xff" * 21) is None


class Stub:
    """A node that answers for every key; `name` nodes are what it names as nearest, `own` is what it calls itself."""

    def __init__(self, named: bytes = b"", own: bytes = b"", fault: Exception | None = None) -> None:
        self.named, self.own, self.fault = named, own, fault

    async def rpc_find(self, request: dht_pb2.FindRequest, timeout: float) -> dht_pb2.FindResponse:  # noqa: ASYNC109
        if self.fault is not None:
            raise self.fault
        if not self.named and not self.own:
            await asyncio.sleep(0.01)  # the way to an honest node is longer
        near = {"nearest_node_ids": [self.named], "nearest_peer_ids": [b"nobody"]} if self.named else {}
        results = [dht_pb2.FindResult(type=dht_pb2.NOT_FOUND, **near) for _ in request.keys]
        return dht_pb2.FindResponse(results=results, peer=dht_pb2.NodeInfo(node_id=self.own))


def reader(*stubs: Stub) -> Any:
    """A node that knows these, in hivemind's place: no honest node of its own would send such bytes."""
    peers = {PeerID.from_base58(peer_id(f"node {n}")): stub for n, stub in enumerate(stubs)}
    known = {DHTID.generate(f"node {n}"): peer for n, peer in enumerate(peers)}
    nobody = Stub(fault=OSError("nobody is there"))

    async def update(*_: object, **__: object) -> None:
        return None

    protocol = SimpleNamespace(
        routing_table=SimpleNamespace(uid_to_peer_id=known),
        node_info=dht_pb2.NodeInfo(),
        get_stub=lambda peer: peers.get(peer, nobody),
        update_routing_table=update,
    )
    return SimpleNamespace(dht=SimpleNamespace(protocol=protocol, node_id=DHTID.generate("me")), config=None)


@pytest.mark.parametrize("nonsense", NONSENSE, ids=len)
@pytest.mark.parametrize("place", ["named", "own"])
async def test_ids_that_are_none_cost_themselves(nonsense: bytes, place: str) -> None:
    found = await bulk.find(reader(*(Stub() for _ in range(7)), Stub(**{place: nonsense})), KEYS, 30.0)
    assert len(found.results) == len(KEYS)


@pytest.mark.parametrize(
    "fault", [AssertionError("x"), RuntimeError("x"), KeyError("x"), UnicodeDecodeError("utf8", b"", 0, 1, "x")]
)
async def test_whatever_goes_wrong_with_one_node_the_others_answer(fault: Exception) -> None:
    found = await bulk.find(reader(*(Stub() for _ in range(7)), Stub(fault=fault)), KEYS, 30.0)
    assert len(found.results) == len(KEYS)


@pytest.mark.parametrize("fault", [AssertionError("x"), RuntimeError("x"), OSError("x")])
async def test_a_bootstrap_peer_whose_answer_breaks_hivemind_has_not_answered(fault: Exception) -> None:
    assert await entrances._query(reader(Stub(fault=fault)), peer_id("node 0"), KEYS[0], Silence()) is None


@pytest.mark.parametrize("nonsense", NONSENSE, ids=len)
async def test_a_bootstrap_peer_that_calls_itself_something_strange_has_answered(nonsense: bytes) -> None:
    node = reader(Stub(own=nonsense))
    assert await entrances._query(node, peer_id("node 0"), KEYS[0], Silence()) is not None
