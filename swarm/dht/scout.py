"""A question to the DHT through one address and no other: by a p2pd of its own, which knows nothing else.

The reader's own connection to a bootstrap peer runs over whichever address came first, and would answer for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import dht_pb2
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht.addresses import peer_id_of

LIMIT_S = 5.0
START_LIMIT_S = 10.0
"""p2pd starts in 0.3 s; on a machine that is short of breath nothing is said of the peer."""
FIND_RPC = "DHTProtocol.rpc_find"

_FAULTS = (TimeoutError, ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Found:
    """`ok` None: our own end did not start, which says nothing. `detail` is why there was no answer."""

    ok: bool | None
    detail: str = ""


async def ask_through(address: str, relay: bool = False) -> Found:
    """Dials this address only, and has its peer look up a key. libp2p itself checks that it is that peer."""
    try:
        p2p = await asyncio.wait_for(_start(relay), START_LIMIT_S)
    except _FAULTS:
        return Found(None)
    try:
        peer = PeerID.from_base58(peer_id_of(address))
        async with asyncio.timeout(LIMIT_S):
            await p2p._client.connect(peer, [Multiaddr(address).decapsulate(f"/p2p/{peer_id_of(address)}")])
            request = dht_pb2.FindRequest(keys=[DHTID.generate(source=address).to_bytes()])
            await p2p.call_protobuf_handler(peer, FIND_RPC, request, dht_pb2.FindResponse)
        return Found(True)
    except TimeoutError:
        return Found(False, f"no answer to a DHT query within {LIMIT_S:g} s")
    except _FAULTS as error:
        return Found(False, _why(str(error)))
    finally:
        with contextlib.suppress(*_FAULTS):
            await asyncio.wait_for(p2p.shutdown(), LIMIT_S)


async def _start(relay: bool) -> P2P:
    return await P2P.create(
        host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        dht_mode="client",
        nat_port_map=False,
        auto_nat=False,
        use_relay=relay,
        check_if_identity_free=False,
    )


def _why(text: str) -> str:
    """libp2p's words, without the addresses and ids around them."""
    known = {
        "peer id mismatch": "another peer answers there",
        "peer IDs don't match": "another peer answers there",
        "connection refused": "nothing listens there",
        "protocols not supported": "the peer there is in no DHT of this kind",
        "protocol not supported": "the peer there is in no DHT of this kind",
    }
    return next((words for fragment, words in known.items() if fragment in text), "no answer to a DHT query")
