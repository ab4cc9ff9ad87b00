"""Who is hidden now, as the site's staff has ruled, and what stands in the place of a hidden peer."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable

from django.conf import settings

from monitor.hiding.rules import HiddenList, name_key
from monitor.rulings import Rulings, staff


def hidden_list() -> HiddenList:
    """Of every swarm: a text that is shown need not say whose it is. One query."""
    return _list(*staff().hidden(time.time()))


def hidden_by(rulings: Rulings) -> HiddenList:
    return _list(rulings.hidden_names, rulings.hidden_peers)


def _list(names: Iterable[str], peers: Iterable[str]) -> HiddenList:
    return HiddenList(frozenset(map(name_key, names)), {peer_id: _alias(peer_id) for peer_id in peers})


def _alias(peer_id: str) -> str:
    """The same in all processes and for as long as the site keeps its key; nobody else can find out whose it is."""
    return f"hidden-{hmac.new(settings.SECRET_KEY.encode(), peer_id.encode(), hashlib.sha256).hexdigest()[:12]}"
