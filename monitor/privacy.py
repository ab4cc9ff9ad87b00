"""Takes addresses out of texts: libp2p's errors quote every address that it dialled, and those are people's homes; and what
strangers call themselves may be one.

What stays is enough to act on: the transport, the port, the peer id and what went wrong.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import re
from dataclasses import replace

from django.conf import settings

from swarm.snapshot import Dropped
from swarm.wire.records import ServerRecord

HIDDEN = "…"

_IN_MULTIADDRESS = re.compile(r"(?<=/)(ip4|ip6|dns|dns4|dns6|dnsaddr)/[^/\s]+")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w)")
_MAYBE_IPV6 = re.compile(r"(?<![\w:])[0-9a-fA-F:]{2,39}(?!\w)")


@functools.lru_cache(maxsize=8_192)
def without_addresses(text: str) -> str:
    """Kept for a while, since the same few names and errors are read at every request."""
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


def record_without_addresses(record: ServerRecord) -> ServerRecord:
    return replace(
        record,
        public_name=record.public_name and without_addresses(record.public_name),
        version=record.version and without_addresses(record.version),
        adapters=tuple(map(without_addresses, record.adapters)),
    )


def dropped_without_addresses(record: Dropped) -> Dropped:
    return replace(record, subkey=without_addresses(record.subkey), detail=without_addresses(record.detail))
