"""How fast does a server really compute? A small forward pass through one of its blocks and one through all, against the clock.

Both carry the same tensors, so that what the second takes longer is computing alone; what is left of the first, after the
round trip, is the line. The tensors are noise from a seed, and a print of the answers is kept, so that several servers can be
asked alike and compared (`swarm.answers`): an answer that is wrong by itself is no rate. A server that has sessions open is
left alone, unless it always has some when it is to be measured.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2

from swarm.answers import prints
from swarm.answers.prints import Floats, Print, Wrong
from swarm.dht.probe import INFO_RPC
from swarm.errors import BadRecord
from swarm.snapshot import Timing
from swarm.wire.codec import as_map, decode, encode
from swarm.wire.keys import block_uid
from swarm.wire.records import as_cache_tokens
from swarm.wire.schema import hidden_size
from swarm.wire.spans import Span

FORWARD_RPC = "TransformerConnectionHandler.rpc_forward"
LIMIT_S = 10.0
"""For all of it. Who takes longer for a few dozen tokens is not measured this time."""
PAYLOAD_BYTES = 2**20
"""One way: enough for a home's line to take longer than a round trip does, and a quarter of what one message may have."""
MOST_TOKENS = 128
ROUNDS = 2
"""Each pass is made so often, and the faster one counts: a queue met by chance is not the server's speed. Each turn has tensors
of its own, so that no answer can be kept ready, and all of them are looked at."""


class Why(StrEnum):
    """Why a server was not measured."""

    BUSY = "busy"
    NO_ANSWER = "no answer"
    NOT_SAID = "its answer does not say how wide its hidden states are"
    WRONG = "its answer is no forward pass"
    PACKED = "its answer is in a form that is not read here"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: which block alone, and the seed of the tensors. Who is given both alike is asked the very same."""

    block: int
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(16))


@dataclass(frozen=True, slots=True)
class Measured:
    """`timing` None: it was not measured, and `why`; `wrong` says what is wrong with an answer by itself. `cache_tokens` is the
    free cache that it told just before. Prints are of the answers of the one block and of all; of a single block the same."""

    timing: Timing | None
    why: str = ""
    cache_tokens: int | None = None
    wrong: str = ""
    block: Print | None = None
    whole: Print | None = None


async def measure(
    p2p: P2P,
    peer_id: str,
    prefix: str,
    span: Span,
    idle_cache_tokens: int | None = None,
    limit_s: float = LIMIT_S,
    asked: Asked | None = None,
    even_if_busy: bool = False,
) -> Measured:
    """`idle_cache_tokens`: the most free cache that was ever seen of it. Petals' servers do not say how many sessions they
    have; with less free than that, there are some. `even_if_busy`: whatever it says about that. Without `asked`: its first
    block, and tensors that nobody else gets."""
    what = asked or Asked(span.start)
    try:
        async with asyncio.timeout(limit_s):
            return await _measure(p2p, PeerID.from_base58(peer_id), prefix, span, idle_cache_tokens, what, even_if_busy)
    except (TimeoutError, BadRecord, P2PHandlerError, P2PDaemonError, ControlFailure, DispatchFailure, OSError, ValueError):
        return Measured(None, Why.NO_ANSWER)


async def _measure(
    p2p: P2P, peer: PeerID, prefix: str, span: Span, idle_cache_tokens: int | None, asked: Asked, even_if_busy: bool
) -> Measured:
    uid = block_uid(prefix, asked.block)
    await _info(p2p, peer, uid)  # dials; what that takes is no round trip
    sent_at = time.monotonic()
    raw = await _info(p2p, peer, uid)
    round_trip_s = time.monotonic() - sent_at
    info = as_map(decode(raw, foreign=True))
    free = as_cache_tokens(info.get("cache_tokens_available"))
    sessions = info.get("sessions_active")
    busy = (isinstance(sessions, int) and sessions > 0) or (idle_cache_tokens and free is not None and free < idle_cache_tokens)
    if busy and not even_if_busy:
        return Measured(None, Why.BUSY, free)
    width = hidden_size(raw)
    if width is None:
        return Measured(None, Why.NOT_SAID, free)
    tokens = max(1, min(MOST_TOKENS, PAYLOAD_BYTES // (2 * width)))
    all_of_it = " ".join(block_uid(prefix, block) for block in span)
    turns: list[_Turn] = []
    for turn in range(ROUNDS):
        buffer = prints.question(asked.seed, turn, tokens, width)
        try:
            whole = await _pass(p2p, peer, all_of_it, buffer, tokens, width)
            one = await _pass(p2p, peer, uid, buffer, tokens, width)
            if len(span) > 1 and np.array_equal(whole.answer, one.answer):
                raise _Unusable(Wrong.ONE_FOR_ALL)
        except _Unusable as error:
            return Measured(None, Why.WRONG if error.wrong else Why.PACKED, free, error.wrong or "")
        turns.append(_Turn(prints.asked(buffer, tokens, width), whole, one))
    timing = Timing(tokens, len(span), min(t.whole.took_s for t in turns), min(t.one.took_s for t in turns), round_trip_s)
    block = prints.print_of(asked.seed, [(turn.one.answer, turn.sent) for turn in turns])
    return Measured(
        timing, "", free, "", block, prints.print_of(asked.seed, [(turn.whole.answer, turn.sent) for turn in turns])
    )


class _Unusable(Exception):
    """An answer that is wrong by itself, or (None) in a form that is not read."""

    def __init__(self, wrong: Wrong | None) -> None:
        super().__init__(wrong)
        self.wrong = wrong


@dataclass(frozen=True, slots=True)
class _Answer:
    answer: Floats
    took_s: float


@dataclass(frozen=True, slots=True)
class _Turn:
    sent: Floats
    whole: _Answer
    one: _Answer


async def _info(p2p: P2P, peer: PeerID, uid: str) -> bytes:
    reply = await p2p.call_protobuf_handler(peer, INFO_RPC, runtime_pb2.ExpertUID(uid=uid), runtime_pb2.ExpertInfo)
    return bytes(reply.serialized_info)


async def _pass(p2p: P2P, peer: PeerID, uids: str, buffer: bytes, tokens: int, width: int) -> _Answer:
    """What comes back for these tensors and how long it takes. _Unusable where it is no answer to them."""
    sent = runtime_pb2.Tensor(buffer=buffer, size=[1, tokens, width], dtype="float16")
    nothing = runtime_pb2.Tensor(buffer=b"", size=[0], dtype="float32")
    metadata = encode({"args_structure": ((b"__T0", b"__T1"), {}), "points": 0.0, "active_adapter": ""})
    request = runtime_pb2.ExpertRequest(uid=uids, tensors=[sent, nothing], metadata=metadata)
    begun = time.monotonic()
    reply = await p2p.call_protobuf_handler(peer, FORWARD_RPC, request, runtime_pb2.ExpertResponse)
    took_s = time.monotonic() - begun
    if len(reply.tensors) < 1:
        raise _Unusable(Wrong.SHAPE)
    tensor = reply.tensors[0]
    if tensor.compression not in (runtime_pb2.CompressionType.NONE, runtime_pb2.CompressionType.FLOAT16):
        # Nobody asked for it; and what cannot be read cannot be believed to have been computed.
        raise _Unusable(None)
    dtype = "float16" if tensor.compression == runtime_pb2.CompressionType.FLOAT16 else tensor.dtype
    answer = prints.answered(tensor.buffer, dtype, tensor.size, tokens, width)
    wrong = answer if isinstance(answer, Wrong) else prints.wrong(answer, prints.asked(buffer, tokens, width))
    if isinstance(answer, Wrong) or wrong is not None:
        raise _Unusable(wrong)
    return _Answer(answer, took_s)
