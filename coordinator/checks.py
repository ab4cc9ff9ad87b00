"""What `manage.py check` says of addresses that strangers are given: each must be one, and one that they can reach.

Pure but for the settings; names are not looked up. Warnings only, since a wrong address is no reason not to migrate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks

from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id

_HOSTS = {"ip4": ipaddress.IPv4Address, "ip6": ipaddress.IPv6Address}
_NAMES = ("dns", "dns4", "dns6", "dnsaddr")
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""Names that mean something else, or nothing, outside one's own network (RFC 6761, RFC 6762, RFC 8375)."""


def join_addresses(app_configs: Sequence[Any] | None = None, **more: Any) -> list[checks.CheckMessage]:
    """Registered as a system check, so that `migrate` says it too."""
    public = not _is_near(urlsplit(settings.SEPAL_URL).hostname or "")
    given: list[tuple[str, Sequence[str]]] = [("SEPAL_JOIN_ADDRESSES", settings.SEPAL_JOIN_ADDRESSES)]
    given += [(f"join_addresses of swarm {item['name']}", item.get("join_addresses") or ()) for item in settings.SEPAL_SWARMS]
    return [message for where, listed in given for message in complaints(where, listed, public=public)]


def complaints(where: str, addresses: Sequence[str], *, public: bool) -> Iterator[checks.CheckMessage]:
    for place, address in enumerate(addresses, 1):
        named = f"{where}, entry {place} ({address!r})"
        wrong = fault(address)
        if wrong:
            yield checks.Warning(f"{named}: {wrong}.", hint="/ip4/203.0.113.5/tcp/31330/p2p/12D3KooW…", id="sepal.W002")
        elif public and _is_near(address.split("/")[2]):
            hint = "Publish the address that others reach the bootstrap peer at."
            yield checks.Warning(
                f"{named} is a loopback or private address: nobody outside reaches it.", hint=hint, id="sepal.W001"
            )


def fault(address: str) -> str:
    """What is wrong with a bootstrap address, with the part that is; empty where nothing is."""
    parts = address.split("/")
    if any(part != part.strip() for part in parts) or " " in address:
        return "there is a space in it"
    if parts[0] or len(parts) < 3 or not parts[2]:
        return "it does not begin with /ip4/, /ip6/ or /dns4/ and a host"
    kind, host = parts[1], parts[2]
    if kind not in (*_HOSTS, *_NAMES):
        return f"/{kind} is no kind of address: /ip4, /ip6 or /dns4"
    if kind in _HOSTS:
        try:
            _HOSTS[kind](host)
        except ValueError:
            return f"{host} is no {kind} address"
    rest = parts[3:]
    # Through a relay there are two peers, the relay's first.
    if rest.count("p2p") != 1 + rest.count("p2p-circuit") or any(part in (*_HOSTS, *_NAMES) for part in rest):
        return "it does not end in one /p2p/PEER: two addresses may be glued together, or the peer id is missing"
    if rest[-2:-1] != ["p2p"]:
        return f"it ends in /{rest[-1]} and not in /p2p/PEER"
    try:
        parse_peer_id(rest[-1])
    except BadRecord as error:
        return error.detail
    return ""


def _is_near(host: str) -> bool:
    """Loopback, private or link-local: reached from this machine or network only."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(_LOCAL_NAMES)
