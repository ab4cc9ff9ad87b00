"""How long a pass through one server took, as far as it says something about that server."""

from __future__ import annotations

import time

from blockserver.client.link import Link
from blockserver.client.routes import Router
from swarm.throughput import Pass
from swarm.wire.reports import LEAST_TOKENS


class Stopwatch:
    """Started before a step is sent. `tokens` are those of all rows."""

    def __init__(self, link: Link, tokens: int) -> None:
        self._link, self._tokens = link, tokens
        self._was_open = link.stream.is_open
        # A server that is given what came before first does more than this pass.
        self._alone = self._was_open or not link.history.tokens
        self._began = time.monotonic()

    def passed(self, router: Router) -> Pass | None:
        """To be asked when the answer is there. None for a pass that is too short, or of unknown way."""
        seconds = time.monotonic() - self._began - (0.0 if self._was_open else self._link.stream.opening_s)
        if not self._alone or self._tokens < LEAST_TOKENS:
            return None
        hop = self._link.hop
        known = router.about(hop.peer_id)
        if known is None or known.round_trip_s is None:
            return None
        return Pass(self._tokens, len(hop.span), len(known.span), max(seconds, 0.0), known.round_trip_s)
