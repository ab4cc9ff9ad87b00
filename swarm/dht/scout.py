"""A question to the DHT through one address and no other: by a p2pd of its own, which knows nothing else.

The reader's own connection to a bootstrap peer runs over whichever address came first, and would answer for all of them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from swarm.dht.addresses import peer_id_of
from swarm.dht.bare import FAULTS, connect, start_bare, stop_bare

LIMIT_S = 5.0
FIND_RPC = "DHTProtocol.rpc_find"


@dataclass(frozen=True, slots=True)
class Found:
    """`ok` None: our own end did not start, which says nothing. `detail` is why there was no answer."""

    ok: bool | None
    detail: str = ""


async def ask_through(address: str, relay: bool = False) -> Found:
    """Dials this address only, and has its peer look up a key. libp2p itself checks that it is that peer."""
    try:
        p2p = await start_bare(relay)
    except FAULTS:
        return Found(None)
    try:
        peer = PeerID.from_base58(peer_id_of(address))
        async with asyncio.timeout(LIMIT_S):
            await connect(p2p, peer, [address])
            request = dht_pb2.FindRequest(keys=[DHTID.generate(source=address).to_bytes()])
            await p2p.call_protobuf_handler(peer, FIND_RPC, request, dht_pb2.FindResponse)
        return Found(True)
    except TimeoutError:
        return Found(False, f"no answer to a DHT query within {LIMIT_S:g} s")
    except FAULTS as error:
        return Found(False, _why(str(error)))
    finally:
        await stop_bare(p2p)


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
