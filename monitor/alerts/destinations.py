"""Where a webhook may go: https, to public addresses. A stranger chooses the URL, and we send it from inside our network.

The name is looked up once, and the connection goes to the very address that was found public: a second look-up could find
another one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from monitor.alerts.outbox import DeliveryFailed

MAX_LENGTH = 500
LOWEST_PORT = 1_024
"""Below it are mail, shells and name servers; a webhook listens at 443 or on a port of its own."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class BadDestination(ValueError):
    """The sentence says what would be right."""


@dataclass(frozen=True, slots=True)
class Destination:
    """`host` as written in the URL, without brackets; `target` is the path with its query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def is_default_port(self) -> bool:
        return self.port == (443 if self.scheme == "https" else 80)

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.is_default_port else f"{host}:{self.port}"


def read(url: str, *, private: bool) -> Destination:
    """`private` is the site's setting that allows http and addresses of its own network."""
    if len(url) > MAX_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise BadDestination(f"A webhook's address is at most {MAX_LENGTH} plain characters without spaces.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadDestination("This is no address of a webhook: it should read https://HOST/PATH.") from error
    if parts.scheme != "https" and not (private and parts.scheme == "http"):
        raise BadDestination("A webhook's address begins with https://.")
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise BadDestination("A webhook's address names a host, and no user or password.")
    port = port if port is not None else 443 if parts.scheme == "https" else 80
    if not private and port != 443 and port < LOWEST_PORT:
        raise BadDestination(f"A webhook listens on port 443, or on one from {LOWEST_PORT}.")
    host = parts.hostname
    if not private and _literal(host) is not None and not is_public(_literal(host)):
        raise BadDestination("This address belongs to a private network.")
    return Destination(parts.scheme, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


async def public_address(destination: Destination, resolve: Resolve, *, private: bool) -> str:
    """One address of the host. Where a single one of them is not public, none is taken: such a name is a trap."""
    try:
        found = await resolve(destination.host, destination.port)
    except OSError as error:
        raise DeliveryFailed(f"the name {destination.host} cannot be looked up") from error
    if not found:
        raise DeliveryFailed(f"the name {destination.host} has no address")
    if not private and not all(is_public(_literal(address)) for address in found):
        raise DeliveryFailed(f"{destination.host} leads into a private network", permanent=True)
    return found[0]


def is_public(address: Address | None) -> bool:
    """Also of what an IPv6 address carries inside it."""
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _literal(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text.split("%", 1)[0])
    except ValueError:
        pass
    try:
        # Also what the system would read as an address: 127.1, 0x7f000001, 2130706433.
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):
        return None
