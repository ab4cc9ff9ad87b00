"""How this node is connected to others: directly, or through a relay. An address that cannot be printed costs itself only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, P2PDaemonError
from hivemind.utils.multiaddr import Multiaddr

TIMEOUT_S = 5.0
MAX_ADDRESSES = 8
"""Tried addresses that are kept of a failed dial: enough to see what kind they are."""

_QUOTED = re.compile(r"(?<![\w/])/(?:ip4|ip6|dns|dns4|dns6|dnsaddr)/[^\s\]\),;]+")


async def routes(p2p: P2P) -> dict[str, str]:
    """`direct` or `relay` by peer id, of every peer that is connected now; a direct connection beats a relayed one."""
    try:
        connected = await asyncio.wait_for(p2p.list_peers(), TIMEOUT_S)
    except (TimeoutError, OSError, ControlFailure, P2PDaemonError):
        return {}
    found: dict[str, str] = {}
    for peer in connected:
        kinds = {kind_of(text) for text in printable(peer.addrs)}
        if kinds:
            found[_text(peer.peer_id)] = "direct" if "direct" in kinds else "relay"
    return found


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
