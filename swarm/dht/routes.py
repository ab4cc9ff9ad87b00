"""How this node is connected to others: directly, or through a relay. An address that cannot be printed costs itself only."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, P2PDaemonError
from hivemind.utils.multiaddr import Multiaddr

TIMEOUT_S = 5.0
MAX_ADDRESSES = 8
"""Tried addresses that are kept of a failed dial: enough to see what kind they are."""

_HOST = re.compile(r"/ip[46]/([^/%]+)")
_QUOTED = re.compile(r"(?<![\w/])/(?:ip4|ip6|dns|dns4|dns6|dnsaddr)/[^\s\]\),;]+")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a peer is connected: `via` direct or relay; `network` is the part of the Internet that it sits in, as text, empty
    where that is not known or no public one."""

    via: str
    network: str = ""


async def routes(p2p: P2P) -> dict[str, Connection]:
    """By peer id, of every peer that is connected now; a direct connection beats a relayed one."""
    try:
        connected = await asyncio.wait_for(p2p.list_peers(), TIMEOUT_S)
    except (TimeoutError, OSError, ControlFailure, P2PDaemonError):
        return {}
    found: dict[str, Connection] = {}
    for peer in connected:
        addresses = printable(peer.addrs)
        direct = [address for address in addresses if kind_of(address) == "direct"]
        if addresses:
            # Behind a relay the address is the relay's, and says nothing of the peer.
            networks = sorted(filter(None, map(network_of, direct)))
            found[_text(peer.peer_id)] = Connection("direct" if direct else "relay", networks[0] if networks else "")
    return found


def network_of(address: str) -> str:
    """What is likely to go down together: a /24 of IPv4, a /48 of IPv6. Empty for names, and for addresses that are nobody's
    on the Internet: all of a laboratory is one private network, and so is this machine."""
    match = _HOST.match(address)
    try:
        host = ipaddress.ip_address(match[1]) if match else None
    except ValueError:
        return ""
    if host is None or not host.is_global:
        return ""
    return str(ipaddress.ip_network((host, 24 if host.version == 4 else 48), strict=False))


def printable(addresses: Iterable[Multiaddr]) -> list[str]:
    """The addresses as text, without those of protocols that this library does not know."""
    texts: list[str] = []
    for address in addresses:
        try:
            texts.append(str(address))
        except ValueError:
            continue
    return texts


def kind_of(address: str) -> str:
    return "relay" if "/p2p-circuit" in address else "direct"


def quoted_addresses(text: str) -> tuple[str, ...]:
    """The addresses that libp2p says it dialled, out of its error text."""
    return tuple(dict.fromkeys(_QUOTED.findall(text)))[:MAX_ADDRESSES]


def _text(peer_id: PeerID) -> str:
    return str(peer_id.to_base58())
