"""Multiaddresses that people typed. A fault is named with its token and position, before libp2p gets to see it."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from hivemind.utils.multiaddr import Multiaddr
from hivemind.utils.multiaddr.exceptions import StringParseError

from swarm.errors import BadRecord, LocalError
from swarm.wire.keys import parse_peer_id


def parse_peer_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Addresses of peers, each ending in `/p2p/PEER_ID`. Commas and white space separate several in one text."""
    tokens = [token for text in texts for token in text.replace(",", " ").split()]
    return tuple(_parse(token, position, needs_peer=True) for position, token in enumerate(tokens, start=1))


def parse_listen_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Addresses to listen on, such as `/ip4/0.0.0.0/tcp/31330`."""
    tokens = [token for text in texts for token in text.replace(",", " ").split()]
    return tuple(_parse(token, position, needs_peer=False) for position, token in enumerate(tokens, start=1))


def peer_id_of(address: str) -> str:
    return str(Multiaddr(address)["p2p"])


def _parse(token: str, position: int, *, needs_peer: bool) -> str:
    where = f"address {position}, {token[:120]!r}"
    if token.count("/p2p/") > 1 and "/p2p-circuit" not in token:
        raise LocalError(f"{where}, looks like two addresses glued together: separate them by a space")
    try:
        address = Multiaddr(token)
    except StringParseError as error:
        part = f" at /{error.protocol}" if error.protocol else ""
        raise LocalError(
            f"{where}, is no multiaddress: {error.message}{part}. A good one reads /ip4/203.0.113.5/tcp/31330"
            + ("/p2p/PEER_ID" if needs_peer else "")
        ) from error
    if needs_peer:
        peers = [value for protocol, value in address.items() if protocol.name == "p2p"]
        if not peers:
            raise LocalError(f"{where}, does not say which peer: it must end in /p2p/PEER_ID")
        try:
            parse_peer_id(peers[-1])
        except BadRecord as error:
            raise LocalError(f"{where}: {error.detail}") from error
    elif not list(address.items()):
        raise LocalError(f"{where}, is empty")
    return str(address)


def refuse_taken_port(address: str) -> None:
    """Raises LocalError where another process listens there. libp2p itself would share the port with it, and each of the two
    would get some of the other's connections."""
    parts = {protocol.name: value for protocol, value in Multiaddr(address).items()}
    host, port = parts.get("ip4") or parts.get("ip6"), int(parts.get("tcp") or 0)
    if not host or not port:
        return
    with socket.socket(socket.AF_INET if "ip4" in parts else socket.AF_INET6) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LocalError(f"cannot listen on {address}: {error.strerror}. Choose another port, or 0 for any") from error
