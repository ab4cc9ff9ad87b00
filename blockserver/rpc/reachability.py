"""Answers other servers that ask "can you reach that peer?": `ReachabilityProtocol.rpc_check`.

Knows one question and one dial. The dial should come from an instance that is not yet connected to the peer, or an
existing connection, perhaps opened from behind a firewall, would answer for it.
"""

from __future__ import annotations

import asyncio

from hivemind.p2p import P2P, P2PContext, P2PDaemonError, P2PHandlerError, PeerID, ServicerBase
from hivemind.proto import dht_pb2, runtime_pb2

from blockserver.wire.protocol import rpc_name

DIAL_TIMEOUT_S = 8.0
"""Below the 10 s for which Petals' servers wait for an answer of their monitor."""


class ReachabilityProtocol(ServicerBase):
    """`probe` dials; it may be the server's own instance where no separate one is at hand."""

    def __init__(self, p2p: P2P, probe: P2P | None = None, *, timeout_s: float = DIAL_TIMEOUT_S) -> None:
        self._p2p = p2p
        self._probe = probe or p2p
        self._timeout_s = timeout_s

    async def start(self) -> None:
        await self.add_p2p_handlers(self._p2p)

    async def stop(self) -> None:
        await self.remove_p2p_handlers(self._p2p)

    async def rpc_check(self, request: dht_pb2.PingRequest, context: P2PContext) -> dht_pb2.PingResponse:
        """`peer.node_id` holds the bytes of a peer id here, not of a DHT id."""
        try:
            peer = PeerID(request.peer.node_id)
        except ValueError:
            return dht_pb2.PingResponse(available=False)
        return dht_pb2.PingResponse(available=await reachable(self._probe, peer, self._timeout_s))


async def reachable(p2p: P2P, peer: PeerID, timeout_s: float = DIAL_TIMEOUT_S) -> bool:
    """Whether the peer answers an `rpc_info` call at all; a refusal is an answer too."""
    call = p2p.call_protobuf_handler(peer, rpc_name("rpc_info"), runtime_pb2.ExpertUID(), runtime_pb2.ExpertInfo)
    try:
        await asyncio.wait_for(call, timeout_s)
    except P2PHandlerError:
        return True
    except P2PDaemonError as error:
        return "protocols not supported" in str(error)
    except (TimeoutError, OSError):
        return False
    return True
