"""Events as text on the wire (server-sent events), and where they are read from after an interruption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from monitor.feeds.models import Event
from monitor.hiding.models import hidden_list
from monitor.hiding.rules import HiddenList

RETRY_MS = 5_000
"""Clients that were cut off come back after this, so that a restart of the site does not meet all of them at once."""
REPLAYED_AT_MOST = 500
"""Who missed more is told the state as it is now."""

BEAT = ": still here\n\n"
"""A comment: keeps proxies from closing a stream on which nothing happens."""


def greeting() -> str:
    return f"retry: {RETRY_MS}\n\n"


def event_text(number: int, kind: str, data: Mapping[str, Any]) -> str:
    """JSON in one line, so that one `data:` is enough."""
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data, separators=(',', ':'), allow_nan=False)}\n\n"


def newest(swarm: str) -> int:
    return Event.objects.filter(swarm=swarm).order_by("-id").values_list("id", flat=True).first() or 0


def since(swarm: str, number: int) -> list[tuple[int, str, Any]] | None:
    """What came after event `number`; None where that is not all there any more, was never ours, or is too much to repeat."""
    of = Event.objects.filter(swarm=swarm)
    if number and not of.filter(id=number).exists():
        return None
    found = list(of.filter(id__gt=number).order_by("id").values_list("id", "kind", "data")[: REPLAYED_AT_MOST + 1])
    # Whoever was hidden since is not told again.
    hidden = hidden_list() if found else HiddenList()
    return [(at, kind, hidden.scrubbed(data)) for at, kind, data in found] if len(found) <= REPLAYED_AT_MOST else None


def group_of(swarm: str) -> str:
    """Channels allows few kinds of characters in a group's name."""
    return "events." + hashlib.sha256(swarm.encode()).hexdigest()[:32]
