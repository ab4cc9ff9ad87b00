"""How fast does a server really compute? A small forward pass through one of its blocks and one through all, against the clock.

Both carry the same tensors, so that what the second takes longer is computing alone; what is left of the first, after the
round trip, is the line. The tensors are noise and the answers are not kept. A server that has sessions open is left alone,
unless it always has some when it is to be measured.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from array import array
from dataclasses import dataclass
from enum import StrEnum

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2

from swarm.dht.probe import INFO_RPC
from swarm.errors import BadRecord
from swarm.snapshot import Timing
from swarm.wire.codec import as_map, decode, encode
from swarm.wire.keys import block_uid
from swarm.wire.schema import hidden_size
from swarm.wire.spans import Span

FORWARD_RPC = "TransformerConnectionHandler.rpc_forward"
LIMIT_S = 10.0
"""For all of it. Who takes longer for a few dozen tokens is not measured this time."""
PAYLOAD_BYTES = 2**20
"""One way: enough for a home's line to take longer than a round trip does, and a quarter of what one message may have."""
MOST_TOKENS = 128
ROUNDS = 2
"""Each pass is made so often, and the faster one counts: a queue met by chance is not the server's speed."""


class Why(StrEnum):
    """Why a server was not measured."""

    BUSY = "busy"
    NO_ANSWER = "no answer"
    NOT_SAID = "its answer does not say how wide its hidden states are"
    WRONG = "its answer is no forward pass"


@dataclass(frozen=True, slots=True)
class Measured:
    """`timing` None: it was not measured, and `why`. `cache_tokens` is the free cache that it told just before."""

    timing: Timing | None
    why: str = ""
    cache_tokens: int | None = None


async def measure(
    p2p: P2P,
    peer_id: str,
    prefix: str,
    span: Span,
    idle_cache_tokens: int | None = None,
    limit_s: float = LIMIT_S,
    even_if_busy: bool = False,
) -> Measured:
    """`idle_cache_tokens`: the most free cache that was ever seen of it. Petals' servers do not say how many sessions they
    have; with less free than that, there are some. `even_if_busy`: whatever it says about that."""
    try:
        async with asyncio.timeout(limit_s):
            return await _measure(p2p, PeerID.from_base58(peer_id), prefix, span, idle_cache_tokens, even_if_busy)
    except (TimeoutError, BadRecord, P2PHandlerError, P2PDaemonError, ControlFailure, DispatchFailure, OSError, ValueError):
        return Measured(None, Why.NO_ANSWER)


async def _measure(
    p2p: P2P, peer: PeerID, prefix: str, span: Span, idle_cache_tokens: int | None, even_if_busy: bool
) -> Measured:
    uid = block_uid(prefix, span.start)
    await _info(p2p, peer, uid)  # dials; what that takes is no round trip
    asked = time.monotonic()
    raw = await _info(p2p, peer, uid)
    round_trip_s = time.monotonic() - asked
    info = as_map(decode(raw, foreign=True))
    cache = info.get("cache_tokens_available")
    free = cache if isinstance(cache, int) and not isinstance(cache, bool) else None
    sessions = info.get("sessions_active")
    busy = (isinstance(sessions, int) and sessions > 0) or (idle_cache_tokens and free is not None and free < idle_cache_tokens)
    if busy and not even_if_busy:
        return Measured(None, Why.BUSY, free)
    width = hidden_size(raw)
    if width is None:
        return Measured(None, Why.NOT_SAID, free)
    tokens = max(1, min(MOST_TOKENS, PAYLOAD_BYTES // (2 * width)))
    noise = _noise(tokens, width)
    whole, one = math.inf, math.inf
    for _ in range(ROUNDS):
        whole = min(whole, await _pass(p2p, peer, " ".join(block_uid(prefix, block) for block in span), noise))
        one = min(one, await _pass(p2p, peer, uid, noise))
    if math.isinf(whole) or math.isinf(one):
        return Measured(None, Why.WRONG, free)
    return Measured(Timing(tokens, len(span), whole, one, round_trip_s), "", free)


async def _info(p2p: P2P, peer: PeerID, uid: str) -> bytes:
    reply = await p2p.call_protobuf_handler(peer, INFO_RPC, runtime_pb2.ExpertUID(uid=uid), runtime_pb2.ExpertInfo)
    return bytes(reply.serialized_info)


async def _pass(p2p: P2P, peer: PeerID, uids: str, noise: runtime_pb2.Tensor) -> float:
    """Seconds that one pass takes; infinity where what comes back is not of the shape that went in."""
    nothing = runtime_pb2.Tensor(buffer=b"", size=[0], dtype="float32")
    metadata = encode({"args_structure": ((b"__T0", b"__T1"), {}), "points": 0.0, "active_adapter": ""})
    request = runtime_pb2.ExpertRequest(uid=uids, tensors=[noise, nothing], metadata=metadata)
    begun = time.monotonic()
    reply = await p2p.call_protobuf_handler(peer, FORWARD_RPC, request, runtime_pb2.ExpertResponse)
    took = time.monotonic() - begun
    right = len(reply.tensors) >= 1 and list(reply.tensors[0].size) == list(noise.size) and reply.tensors[0].buffer
    return took if right else math.inf


def _noise(tokens: int, width: int) -> runtime_pb2.Tensor:
    """Small numbers in half precision: 0x2c00 to 0x2fff are 1/16 to 1/8, either sign. New each time, so that no answer can be
    kept ready."""
    dice = random.Random()  # noqa: S311
    half = array("H", (0x2C00 | (word & 0x83FF) for word in memoryview(dice.randbytes(2 * tokens * width)).cast("H")))
    return runtime_pb2.Tensor(buffer=half.tobytes(), size=[1, tokens, width], dtype="float16")
