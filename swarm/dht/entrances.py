"""The bootstrap peers, address by address: does its name resolve, does anything listen there, does its peer answer a DHT query?

And do they all know the same swarm? Peers with the same list of entrances have been seen to form two swarms.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import dht_pb2
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht.addresses import peer_id_of
from swarm.dht.canary import canary_key
from swarm.dht.node import Node
from swarm.snapshot import AddressState

TIMEOUT_S = 5.0

_NAMES = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}


async def look(node: Node) -> tuple[tuple[AddressState, ...], str]:
    """Every configured address, and which bootstrap peers do not know the same swarm, if any. All are asked at once, so that
    dead ones cost one time limit together."""
    known = await _query_all(node)
    states = await asyncio.gather(*(_check(address, known) for address in node.config.initial_peers))
    return tuple(states), split_between({peer_id: peers for peer_id, peers in known.items() if peers is not None})


def split_between(known: Mapping[str, frozenset[str]]) -> str:
    """`known` holds for each bootstrap peer that answers the peers that it knows. Those that share one are in one swarm."""
    groups: list[tuple[set[str], set[str]]] = []
    for peer_id, peers in sorted(known.items()):
        members, reach = {peer_id}, {peer_id, *peers}
        for group in [group for group in groups if group[1] & reach]:
            groups.remove(group)
            members, reach = members | group[0], reach | group[1]
        groups.append((members, reach))
    if len(groups) < 2:
        return ""
    told = " | ".join(", ".join(f"…{peer_id[-6:]}" for peer_id in sorted(members)) for members, _ in groups)
    return f"the bootstrap peers belong to {len(groups)} separate swarms: {told}"


def peers_up(states: Iterable[AddressState]) -> dict[str, bool]:
    """A peer is up where it answers a query, over whichever address."""
    up: dict[str, bool] = {}
    for state in states:
        up[state.peer_id] = up.get(state.peer_id, False) or state.up
    return up


async def _query_all(node: Node) -> dict[str, frozenset[str] | None]:
    peer_ids = sorted({peer_id_of(address) for address in node.config.initial_peers})
    key = DHTID.generate(canary_key(node))
    return dict(zip(peer_ids, await asyncio.gather(*(_query(node, peer_id, key) for peer_id in peer_ids)), strict=True))


async def _query(node: Node, peer_id: str, key: DHTID) -> frozenset[str] | None:
    """The peers that it knows near a key; None where it does not answer."""
    protocol, peer = node.dht.protocol, PeerID.from_base58(peer_id)
    request = dht_pb2.FindRequest(keys=[key.to_bytes()], peer=protocol.node_info)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            response = await protocol.get_stub(peer).rpc_find(request, timeout=TIMEOUT_S)
    except (P2PHandlerError, P2PDaemonError, ControlFailure, DispatchFailure, OSError, TimeoutError, ValueError):
        return None
    if response.peer.node_id:
        # Its entrance is how a node that has lost everybody finds back.
        await protocol.update_routing_table(DHTID.from_bytes(response.peer.node_id), peer, responded=True)
    return frozenset(str(PeerID(raw)) for result in response.results for raw in result.nearest_peer_ids)


async def _check(address: str, known: Mapping[str, frozenset[str] | None]) -> AddressState:
    parts = list(Multiaddr(address).items())
    peer_id = peer_id_of(address)
    kind, host = parts[0][0].name, str(parts[0][1])
    port = next((int(value) for protocol, value in parts if protocol.name == "tcp"), None)
    answers = known.get(peer_id) is not None
    step, detail, family = "ok" if answers else "dht", "" if answers else "no answer to a DHT query", _family(kind, None)
    if port is not None and kind in ("ip4", "ip6", *_NAMES) and "p2p-circuit" not in address:
        at_tcp, family = await _listens(kind, host, port)
        if at_tcp:
            step, detail = at_tcp
    return AddressState(address, peer_id, family, step, detail)


async def _listens(kind: str, host: str, port: int) -> tuple[tuple[str, str] | None, str]:
    """Where connecting ended, or None where something listens; and the address family."""
    loop = asyncio.get_running_loop()
    family = _NAMES.get(kind, socket.AF_INET6 if kind == "ip6" else socket.AF_INET)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            family = found[0][0]
            _, writer = await asyncio.open_connection(host, port, family=family)
            writer.close()
    except socket.gaierror as error:
        return ("dns", f"its name does not resolve ({error.strerror})"), _family(kind, family)
    except TimeoutError:
        return ("tcp", f"nothing answers there within {TIMEOUT_S:g} s"), _family(kind, family)
    except OSError as error:
        return ("tcp", error.strerror or type(error).__name__), _family(kind, family)
    return None, _family(kind, family)


def _family(kind: str, family: int | None) -> str:
    if family is not None:
        return "IPv6" if family == socket.AF_INET6 else "IPv4" if family == socket.AF_INET else kind
    return {"ip4": "IPv4", "ip6": "IPv6"}.get(kind, kind)
