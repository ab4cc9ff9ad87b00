"""Made-up swarms for tests: short to write, valid on the wire."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import base58

from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import OURS, ServerRecord, ServerState
from swarm.wire.spans import Span

_ANNOUNCED = {PeerState.JOINING: ServerState.JOINING, PeerState.LEAVING: ServerState.OFFLINE}


def peer_id(name: str) -> str:
    """A valid Ed25519 peer id, always the same for the same name."""
    key = hashlib.sha256(name.encode()).digest()
    return base58.b58encode(b"\x00\x24\x08\x01\x12\x20" + key).decode()


def server(name: str, start: int, end: int, state: PeerState = PeerState.ONLINE, throughput: float | None = 10.0) -> Server:
    span = Span(start, end)
    record = ServerRecord(_ANNOUNCED.get(state, ServerState.ONLINE), throughput, span, public_name=name)
    return Server(peer_id(name), span, state, record, expires_at=4e9)


def ours(seen: Model) -> Model:
    """The same, of our own servers: those say in their version that they are."""
    said = (replace(server, record=replace(server.record, version=f"{OURS}1.0.0")) for server in seen.servers)
    return replace(seen, servers=tuple(said))


def model(num_blocks: int, *servers: Server, unread: frozenset[int] = frozenset()) -> Model:
    return Model("tiny-hf", num_blocks, None, servers, unread)
