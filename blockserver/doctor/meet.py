"""The swarm, the site and the hub -> facts. A door with a time limit at each step; nothing is announced.

A peer of its own dials each bootstrap peer; a second one listens where the server would, so that others can be asked
whether they reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import Iterable
from dataclasses import replace

import httpx
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time
from hivemind.utils.multiaddr import Multiaddr

from blockserver.doctor.facts import Bootstrap, Facts, Hub, Internet, Port, Swarm
from blockserver.doctor.wishes import Wishes
from blockserver.rpc.reachability import ReachabilityProtocol
from blockserver.serving.reachability_check import ask_peers
from blockserver.site import read_models
from swarm.dht.addresses import peer_id_of
from swarm.dht.node import LOOPBACK, Node, NodeConfig, start_node
from swarm.dht.reading import read_blocks, read_index
from swarm.errors import LocalError, RemoteError
from swarm.snapshot import assemble
from swarm.wire.text import clean_text

DIAL_TIMEOUT_S = 8.0
HTTP_TIMEOUT_S = 10.0
PING_RPC = "DHTProtocol.rpc_ping"
_FAILURES = (TimeoutError, OSError, ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError)


async def look_around(facts: Facts, wishes: Wishes, peers: tuple[str, ...]) -> Facts:
    hub, (site_problem, site_models) = await asyncio.gather(ask_hub(wishes.hub, wishes.token), look_at_site(facts.site))
    facts = replace(
        facts, hub=hub, site_problem=site_problem, site_models=site_models, internet=look_at_internet(wishes.listen, peers)
    )
    if not peers:
        return facts
    facts = replace(facts, bootstraps=await dial_bootstraps(peers))
    speaking = tuple(peer.address for peer in facts.bootstraps if peer.speaks_dht)
    return await _join(facts, wishes, speaking) if speaking else facts


async def dial_bootstraps(peers: tuple[str, ...]) -> tuple[Bootstrap, ...]:
    p2p = await P2P.create(
        host_maddrs=list(LOOPBACK), dht_mode="client", nat_port_map=False, use_relay=False, use_auto_relay=False, auto_nat=False
    )
    try:
        return tuple(await asyncio.gather(*(_dial(p2p, address) for address in peers)))
    finally:
        await p2p.shutdown()


async def _dial(p2p: P2P, address: str) -> Bootstrap:
    peer_id = peer_id_of(address)
    peer = PeerID.from_base58(peer_id)
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await p2p._client.connect(peer, [Multiaddr(address).decapsulate(f"/p2p/{peer_id}")])
    except _FAILURES as error:
        return Bootstrap(address, reached=False, detail=_said(error))
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            started = get_dht_time()
            answer = await p2p.call_protobuf_handler(peer, PING_RPC, dht_pb2.PingRequest(), dht_pb2.PingResponse)
            ahead = answer.dht_time - (started + get_dht_time()) / 2
    except _FAILURES as error:
        return Bootstrap(address, reached=True, detail=_said(error))
    return Bootstrap(address, reached=True, speaks_dht=True, clock_ahead_s=ahead)


async def _join(facts: Facts, wishes: Wishes, peers: tuple[str, ...]) -> Facts:
    config = NodeConfig(
        initial_peers=peers,
        listen=wishes.listen,
        announce=wishes.announce,
        port_mapping=wishes.port_mapping,
        relay=wishes.relay,
    )
    try:
        node = await start_node(config)
    except LocalError as error:
        return replace(facts, port=Port(wishes.listen, taken=str(error)))
    except RemoteError as error:
        return replace(facts, port=Port(wishes.listen, detail=str(error)))
    try:
        return replace(facts, swarm=await look_at_swarm(node, facts.prefix), port=await look_at_port(node, facts.site))
    finally:
        await node.stop()


async def look_at_swarm(node: Node, prefix: str | None) -> Swarm | None:
    """None where the DHT could not be read."""
    models, _, readable = await read_index(node)
    if not readable:
        return None
    chosen = {prefix: models[prefix].num_blocks} if prefix in models else {}
    readings = await read_blocks(node, chosen)
    seen = assemble("", time.time(), {name: models[name] for name in chosen}, readings, visits=None)
    versions = tuple(server.record.version or "" for model in seen.models for server in model.servers)
    return Swarm({name: model.num_blocks for name, model in models.items()}, versions)


async def look_at_port(node: Node, site: str | None) -> Port:
    """Asks the site, and where it cannot say the peers; the latter must find a peer that answers, so one listens meanwhile."""
    addresses = await node.addresses()
    await ReachabilityProtocol(node.p2p).start()
    if site is not None:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
            async with httpx.AsyncClient(timeout=HTTP_TIMEOUT_S) as http:
                response = await http.get(f"{site}/api/v1/is_reachable/{node.peer_id}")
                response.raise_for_status()
                answer = response.json()
            said = clean_text(answer.get("message"), 200) or "no reason given"
            return Port(addresses, bool(answer["success"]), f"the site: {said}")
    said_by_peers = await ask_peers(node)
    if not said_by_peers:
        return Port(addresses, detail="no peer answered")
    able = sum(said_by_peers)
    return Port(addresses, 2 * able >= len(said_by_peers), f"{able} of {len(said_by_peers)} peers reached it")


async def look_at_site(site: str | None) -> tuple[str | None, tuple[str, ...] | None]:
    """What is wrong with the site, and the models that it lists."""
    if site is None:
        return None, None
    try:
        items = await asyncio.to_thread(read_models, site)
    except RemoteError as error:
        return str(error), None
    return None, tuple(str(item.get("prefix")) for item in items)


async def ask_hub(address: str, token: str | None) -> Hub | None:
    """Does the hub know the token? Without a token nobody is asked."""
    if token is None:
        return None
    base = address.rstrip("/")
    try:
        async with httpx.AsyncClient(timeout=HTTP_TIMEOUT_S) as http:
            response = await http.get(f"{base}/api/whoami-v2", headers={"authorization": f"Bearer {token}"})
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # Only the error's kind: its text may quote the header.
        return Hub(base, token_given=True, error=type(error).__name__)
    return Hub(base, token_given=True, status=response.status_code)


def look_at_internet(listen: Iterable[str], peers: Iterable[str]) -> Internet:
    listening, dialled = list(listen), list(peers)
    return Internet(
        ipv4=_has_route(socket.AF_INET, "192.0.2.1"),
        ipv6=_has_route(socket.AF_INET6, "2001:db8::1"),
        needs_ipv4=_all_of(dialled, "ip4"),
        needs_ipv6=_all_of(dialled, "ip6"),
        only_ipv4_listens=_all_of(listening, "ip4"),
    )


def _has_route(family: socket.AddressFamily, address: str) -> bool:
    """Connecting a UDP socket sends nothing; the kernel only looks for a route. The addresses are those of documentation."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


def _all_of(addresses: list[str], family: str) -> bool:
    """Whether all addresses are of one family and lead beyond this machine."""
    return bool(addresses) and all(address.startswith(f"/{family}/") and not _is_loopback(address) for address in addresses)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.split("/")[2]).is_loopback
    except (ValueError, IndexError):
        return False


def _said(error: BaseException) -> str:
    return clean_text(str(error), 120) or type(error).__name__
