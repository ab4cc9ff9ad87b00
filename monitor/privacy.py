"""Takes addresses out of error texts: libp2p quotes every address that it dialled, and those are people's homes.

What stays is enough to act on: the transport, the port, the peer id and what went wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re

from django.conf import settings

HIDDEN = "…"

_IN_MULTIADDRESS = re.compile(r"(?<=/)(ip4|ip6|dns|dns4|dns6|dnsaddr)/[^/\s]+")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w)")
_MAYBE_IPV6 = re.compile(r"(?<![\w:])[0-9a-fA-F:]{2,39}(?!\w)")


def without_addresses(text: str) -> str:
    text = _IN_MULTIADDRESS.sub(rf"\1/{HIDDEN}", text)
    text = _IPV4.sub(HIDDEN, text)
    return _MAYBE_IPV6.sub(_hidden_if_address, text)


def digest(text: str) -> str:
    """Tells texts apart without keeping them, by the site's own key; empty stays empty."""
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:16] if text else ""


def _hidden_if_address(found: re.Match[str]) -> str:
    word = found.group()
    stem = word.rstrip(":") if not word.endswith("::") else word
    try:
        ipaddress.IPv6Address(stem)
    except ValueError:
        return word
    return HIDDEN + word[len(stem) :]
