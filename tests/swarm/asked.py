"""Counts the questions that a node asks, by peer: what waiting costs, without a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hivemind.p2p import PeerID

from swarm.dht.node import Node


@contextmanager
def asked_of(node: Node) -> Iterator[Counter[str]]:
    """Every question over the DHT's protocol, of hivemind's own calls as well, is one more of its peer."""
    protocol, asked = node.dht.protocol, Counter[str]()
    get_stub = protocol.get_stub

    class Counted:
        def __init__(self, peer: PeerID) -> None:
            self._peer, self._stub = str(peer.to_base58()), get_stub(peer)

        def __getattr__(self, name: str) -> Any:
            asked[self._peer] += 1
            return getattr(self._stub, name)

    protocol.get_stub = Counted
    try:
        yield asked
    finally:
        del protocol.get_stub
