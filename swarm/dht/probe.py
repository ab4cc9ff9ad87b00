"""Dial one server and ask it for the blocks at the edges of its span. libp2p itself authenticates who answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2

from swarm.dht.routes import kind_of, quoted_addresses
from swarm.errors import BadRecord
from swarm.snapshot import Outcome, PeerState, Visit
from swarm.wire.codec import as_map, decode
from swarm.wire.keys import block_uid
from swarm.wire.records import as_cache_tokens
from swarm.wire.spans import Span
from swarm.wire.text import clean_text

INFO_RPC = "TransformerConnectionHandler.rpc_info"
ANYBODY = [""]
"""Asks for no block: is somebody there at all?"""
BACKED_OFF = "dial backoff"
"""libp2p's word for an address that it did not dial, since a dial of a while ago failed."""
DIAL_TIMEOUT_S = 5.0
"""As health.petals.dev: a peer behind a relay takes up to 3 s."""


async def visit(p2p: P2P, peer_id: str, prefix: str, span: Span, timeout_s: float = DIAL_TIMEOUT_S) -> Visit:
    """Asks for the first and the last block of the claimed span: a server that lacks one of them answers with an error."""
    return replace(await ask(p2p, peer_id, edges_of(prefix, span), timeout_s), span=span)


async def dial(p2p: P2P, peer_id: str, timeout_s: float = DIAL_TIMEOUT_S) -> Visit:
    """Is somebody there at all? A peer that speaks libp2p but serves no blocks counts as `protocol absent`: it was reached."""
    return await ask(p2p, peer_id, ANYBODY, timeout_s)


def edges_of(prefix: str, span: Span) -> list[str]:
    return list(dict.fromkeys((block_uid(prefix, span.start), block_uid(prefix, span.end - 1))))


async def ask(p2p: P2P, peer_id: str, uids: list[str], timeout_s: float = DIAL_TIMEOUT_S) -> Visit:
    """`rpc_info` of each block of `uids`, over whatever way this p2pd knows to the peer."""
    started = time.monotonic()
    answer: dict[str, object] = {}
    outcome, detail = Outcome.ANSWERED, ""
    tried: tuple[str, ...] = ()
    backed_off = False
    try:
        async with asyncio.timeout(timeout_s):
            peer = PeerID.from_base58(peer_id)
            for uid in uids:
                reply = await p2p.call_protobuf_handler(peer, INFO_RPC, runtime_pb2.ExpertUID(uid=uid), runtime_pb2.ExpertInfo)
                answer = as_map(decode(reply.serialized_info, foreign=True))
    except TimeoutError:
        outcome, detail = Outcome.TIMEOUT, f"no answer within {timeout_s:g} s"
    except BadRecord as error:
        outcome, detail = Outcome.ERROR, f"the answer to rpc_info cannot be read: {error.detail}"
    except (P2PHandlerError, P2PDaemonError, ControlFailure, DispatchFailure, OSError, ValueError) as error:
        outcome, detail = classify(error), (clean_text(str(error), 300) or type(error).__name__)
        tried, backed_off = quoted_addresses(str(error)), BACKED_OFF in str(error)
    return Visit(
        peer_id=peer_id,
        at=time.time(),
        outcome=outcome,
        detail=detail,
        round_trip_s=(time.monotonic() - started) / len(uids) if outcome is Outcome.ANSWERED else None,
        version=clean_text(answer.get("version")),
        cache_tokens_left=as_cache_tokens(answer.get("cache_tokens_available")),
        addresses=tried,
        said=_SAID.get(str(answer.get("state"))),
        backed_off=backed_off,
        via="relay" if tried and all(kind_of(address) == "relay" for address in tried) else "direct" if tried else "",
    )


_SAID = {"joining": PeerState.JOINING, "leaving": PeerState.LEAVING}
"""Sepal's servers say so themselves (docs/protocol.md)."""

_DIAL_ERRORS = (
    # In this order: "failed to dial" texts list every address tried and may quote any of the others.
    ("protocols not supported", Outcome.PROTOCOL_ABSENT),
    ("protocol not supported", Outcome.PROTOCOL_ABSENT),
    ("no addresses", Outcome.NO_ADDRESS),
    ("no good addresses", Outcome.NO_ADDRESS),
    ("routing: not found", Outcome.NO_ADDRESS),
    ("failed to find any peer", Outcome.NO_ADDRESS),
    ("connection refused", Outcome.REFUSED),
    ("all dials failed", Outcome.REFUSED),
    ("failed to dial", Outcome.REFUSED),
    ("deadline exceeded", Outcome.TIMEOUT),
    ("i/o timeout", Outcome.TIMEOUT),
)


def classify(error: Exception) -> Outcome:
    """libp2p's and the handler's error texts -> the closed list; the raw text is kept beside it."""
    if isinstance(error, P2PHandlerError):
        return Outcome.NOT_HELD if "KeyError" in str(error) else Outcome.ERROR
    text = str(error).lower()
    return next((outcome for fragment, outcome in _DIAL_ERRORS if fragment in text), Outcome.ERROR)
