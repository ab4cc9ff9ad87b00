"""Who asks: the key, the address, or the address that a trusted proxy passes on. Addresses are compared and never shown."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence

from blockserver.gateway.refusals import no_key

BEARER = "bearer "


def caller_of(headers: Mapping[str, str], address: str, keys: Sequence[str], proxies: Sequence[str]) -> str:
    """The name under which a request waits. Raises Refusal where a key is needed and not given.

    With a key, the key is the caller; behind a proxy of ours it is one caller for each of the proxy's visitors. The
    right-most address that is no proxy counts: those to its left are the caller's own words.
    """
    key = _key(headers.get("authorization", ""), keys)
    forwarded = headers.get("x-forwarded-for", "")
    if forwarded and _among(address, proxies):
        hops = [hop.strip() for hop in forwarded.split(",")]
        visitor = next((hop for hop in reversed(hops) if not _among(hop, proxies)), hops[0])
        return f"{key} for {visitor[:64]}"
    return f"key {key}" if keys else f"address {address}"


def _key(authorization: str, keys: Sequence[str]) -> int:
    """Which of the keys; each is compared, so that the time taken tells nothing."""
    if not keys:
        return 0
    given = authorization[len(BEARER) :] if authorization[: len(BEARER)].lower() == BEARER else ""
    found = [hmac.compare_digest(given.strip().encode(), key.encode()) for key in keys]
    if not any(found):
        raise no_key()
    return found.index(True)


def _among(address: str, networks: Sequence[str]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in ipaddress.ip_network(network) for network in networks)
