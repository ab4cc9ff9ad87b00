"""How far other peers are: round trips of small calls, smoothed over time.

A first call to a peer dials it and finds out what it speaks, which takes several round trips; only a call after it counts.
Knows peers and seconds; not why somebody wants to know.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure
from hivemind.proto import runtime_pb2

from blockserver.wire.protocol import rpc_name
from swarm.errors import BadRecord
from swarm.wire.codec import as_map, decode

SMOOTHING = 0.2
"""Share of the newest round trip, as Petals' servers smooth theirs."""
TIMEOUT_S = 3.0
"""A peer on the other side of the world, behind a relay, answers in one second."""
MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Pong:
    """`said` is the answer to rpc_info, empty where the peer refused. libp2p authenticates who answers."""

    round_trip_s: float
    said: Mapping[str, object]


@dataclass
class Pings:
    """Smoothed round trips by peer id, in seconds; infinite for a peer that did not answer."""

    p2p: P2P
    timeout_s: float = TIMEOUT_S
    said: dict[str, Mapping[str, object]] = field(default_factory=dict)
    _round_trips: dict[str, float] = field(default_factory=dict)

    def known(self, peer_id: str) -> float | None:
        return self._round_trips.get(peer_id)

    def all(self) -> dict[str, float]:
        return dict(self._round_trips)

    async def measure(self, peers: Collection[str]) -> None:
        """Once each, some at a time. Peers that are not among these are forgotten."""
        for kept in (self._round_trips, self.said):
            for gone in set(kept) - set(peers):
                del kept[gone]
        places = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(peer_id: str) -> None:
            async with places:
                self._note(peer_id, await ping(self.p2p, peer_id, self.timeout_s, again=not self._is_warm(peer_id)))

        await asyncio.gather(*map(one, dict.fromkeys(peers)))

    def _is_warm(self, peer_id: str) -> bool:
        return math.isfinite(self._round_trips.get(peer_id, math.inf))

    def _note(self, peer_id: str, pong: Pong | None) -> None:
        if pong is None:
            self._round_trips[peer_id] = math.inf
            self.said.pop(peer_id, None)
            return
        before = self._round_trips.get(peer_id, math.inf)
        newest = pong.round_trip_s
        self._round_trips[peer_id] = before + SMOOTHING * (newest - before) if math.isfinite(before) else newest
        self.said[peer_id] = pong.said


async def ping(p2p: P2P, peer_id: str, timeout_s: float = TIMEOUT_S, *, again: bool = True) -> Pong | None:
    """None where nobody answered in time. With `again` a first call opens the connection and the second one counts."""
    try:
        async with asyncio.timeout(timeout_s):
            peer = PeerID.from_base58(peer_id)
            if again:
                await _call(p2p, peer)
            return await _call(p2p, peer)
    except (TimeoutError, P2PDaemonError, ControlFailure, DispatchFailure, OSError, ValueError):
        return None


async def _call(p2p: P2P, peer: PeerID) -> Pong:
    started = time.monotonic()
    said: Mapping[str, object] = {}
    try:
        answer = await p2p.call_protobuf_handler(peer, rpc_name("rpc_info"), runtime_pb2.ExpertUID(), runtime_pb2.ExpertInfo)
        said = as_map(decode(answer.serialized_info, foreign=True))
    except (P2PHandlerError, BadRecord):
        pass  # a refusal took as long as an answer
    return Pong(time.monotonic() - started, said)
