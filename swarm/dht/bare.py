"""A p2pd by itself: no DHT, no peer that it knows, nothing that it remembers. For a question to one address and no other."""

from __future__ import annotations

import asyncio
import contextlib

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht.given_up import outlive_late_answers

START_LIMIT_S = 10.0
"""p2pd starts in 0.3 s; on a machine that is short of breath nothing is said of the peer."""
STOP_LIMIT_S = 5.0

FAULTS = (TimeoutError, ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError, OSError, ValueError)


async def start_bare(relay: bool) -> P2P:
    """Raises one of FAULTS where our own end does not start."""
    return outlive_late_answers(await asyncio.wait_for(_create(relay), START_LIMIT_S))


async def stop_bare(p2p: P2P) -> None:
    with contextlib.suppress(*FAULTS):
        await asyncio.wait_for(p2p.shutdown(), STOP_LIMIT_S)


async def connect(p2p: P2P, peer: PeerID, addresses: list[str]) -> None:
    """Over these addresses only, with or without its id at the end; libp2p itself checks that it is that peer."""
    own = f"/p2p/{peer.to_base58()}"
    await p2p._client.connect(peer, [Multiaddr(address.removesuffix(own)) for address in addresses])


async def _create(relay: bool) -> P2P:
    return await P2P.create(
        host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        dht_mode="client",
        nat_port_map=False,
        auto_nat=False,
        use_relay=relay,
        check_if_identity_free=False,
    )
