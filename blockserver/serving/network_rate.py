"""How many tokens a second the network carries, measured against peers of the swarm and nobody else.

A payload of zeros goes out as `rpc_push` to a session that does not exist, which every server takes and drops: the time
from the first byte to the answer, less a round trip, gives the rate. A few peers, a few megabytes, a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer

PEERS_MEASURED = 3
BUDGET_S = 8.0
"""For all peers together; they are asked one after another, as they share this machine's line."""

PAYLOADS = (64 * 1024, 1024 * 1024)
"""Bytes. The first finds out whether the line is fast enough for the second, which must stay below a message's 2 MiB."""

WORTH_MORE_S = 0.5
"""A first payload that took longer than this has told enough."""

_PUSH_RPC = "TransformerConnectionHandler.rpc_push"
_ROUND_TRIPS = 3


async def network_tokens_per_s(p2p: P2P, peers: Sequence[tuple[str, str]], bytes_per_token: int) -> float | None:
    """`peers` are ids of servers, each with the uid of one of its blocks. None where no peer could be measured."""
    rates: list[float] = []
    give_up = time.monotonic() + BUDGET_S
    for peer_id, uid in peers[:PEERS_MEASURED]:
        left = give_up - time.monotonic()
        if left <= 0:
            break
        rate = await _bytes_per_s(p2p, PeerID.from_base58(peer_id), uid, left)
        if rate is not None:
            rates.append(rate)
    return statistics.median(rates) / bytes_per_token if rates else None


async def _bytes_per_s(p2p: P2P, peer: PeerID, uid: str, within_s: float) -> float | None:
    """The rate of the largest payload that went through in time."""
    rate: float | None = None
    try:
        async with asyncio.timeout(within_s):
            round_trip = min([await _push(p2p, peer, uid, 0) for _ in range(_ROUND_TRIPS)])
            for size in PAYLOADS:
                took = await _push(p2p, peer, uid, size)
                rate = size / max(took - round_trip, 1e-6)
                if took > WORTH_MORE_S:
                    break
    except (TimeoutError, OSError, P2PDaemonError, ControlFailure, DispatchFailure):
        return rate
    return rate


async def _push(p2p: P2P, peer: PeerID, uid: str, size: int) -> float:
    """Seconds until the answer; a refusal is one."""
    tensor = runtime_pb2.Tensor(buffer=bytes(size), size=[1, 1, size // 4], dtype="float32")
    metadata = MSGPackSerializer.dumps({"session_id": "network-rate", "step_id": "network-rate"})
    request = runtime_pb2.ExpertRequest(uid=uid, tensors=[tensor], metadata=metadata)
    started = time.perf_counter()
    with contextlib.suppress(P2PHandlerError):
        await p2p.call_protobuf_handler(peer, _PUSH_RPC, request, runtime_pb2.ExpertResponse)
    return time.perf_counter() - started
