"""What a client saw of the servers that it used, since it was last asked: for a report to the site (docs/protocol.md).

Pure: passes and failures in, reports out. Knows neither who asks nor what is said of it. What may be our own fault is left out:
a slow line, and a time in which nothing worked at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm.throughput import Pass, rate_of_pass
from swarm.wire.reports import LEAST_TOKENS, MOST_SERVERS, ServerReport
from swarm.wire.text import clean_text

MAX_ERROR = 200
MOST_COUNTED = 1_000_000
"""What a report can hold."""


@dataclass(slots=True)
class _Server:
    requests: int = 0
    failures: int = 0
    last_error: str = ""
    longest: Pass | None = None


@dataclass
class Notes:
    """Shared by all sessions of a client. A request is one step of a session."""

    _servers: dict[str, _Server] = field(default_factory=dict)
    _quickest_s: float | None = None
    """For one token, both ways and computed: so much our own line carries at least."""

    def worked(self, peer_id: str) -> None:
        self._of(peer_id).requests += 1

    def failed(self, peer_id: str, why: str) -> None:
        server = self._of(peer_id)
        server.requests += 1
        server.failures += 1
        server.last_error = clean_text(why, MAX_ERROR) or ""

    def timed(self, peer_id: str, one: Pass) -> None:
        """A pass that was sent from here and answered to here, over a stream that was open."""
        if one.tokens < LEAST_TOKENS:
            return
        each_s = one.seconds / one.tokens
        self._quickest_s = each_s if self._quickest_s is None else min(self._quickest_s, each_s)
        server = self._of(peer_id)
        # Of equals the quicker: a busy moment is not held against anybody.
        if server.longest is None or (one.tokens, -one.seconds) > (server.longest.tokens, -server.longest.seconds):
            server.longest = one

    def it_was_us(self) -> None:
        """Our own peer was broken: what failed meanwhile says nothing about servers."""
        for server in self._servers.values():
            server.requests -= server.failures
            server.failures, server.last_error = 0, ""

    def take(self) -> list[ServerReport]:
        """What is to be told now, and is forgotten here; of more servers than fit, those used most."""
        servers, self._servers = self._servers, {}
        if not any(server.requests > server.failures for server in servers.values()):
            return []
        used = sorted(servers.items(), key=lambda item: (-item[1].requests, item[0]))
        return [self._told(peer_id, server) for peer_id, server in used[:MOST_SERVERS] if server.requests]

    def _told(self, peer_id: str, server: _Server) -> ServerReport:
        rate = rate_of_pass(server.longest, self._quickest_s or 0.0) if server.longest else None
        requests = min(server.requests, MOST_COUNTED)
        failures = min(server.failures, requests)
        return ServerReport(
            peer_id=peer_id, requests=requests, failures=failures, tokens_per_s=rate, last_error=server.last_error
        )

    def _of(self, peer_id: str) -> _Server:
        return self._servers.setdefault(peer_id, _Server())
