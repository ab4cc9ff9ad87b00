"""What one look at the swarm says about one wish. Pure; the words are those that are sent.

Only what was seen counts: while the monitor is blind, or holds back what it sees, models and servers have no finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from monitor.alerts.rules import Finding, Topic
from monitor.published import MISSED_INTERVALS, Standing, Watch, standings
from monitor.rates.facts import CANARY_COUNTS_S
from monitor.times import Moment
from swarm.snapshot import Outcome, PeerState, Server
from swarm.wire.spans import in_words, runs

_LOST = {
    PeerState.UNREACHABLE: "announces itself, but does not answer",
    PeerState.GONE: "has stopped announcing itself",
    PeerState.LEAVING: "says that it is leaving",
    # Of those that load, this is said only where nobody waits for them: anyone may write such a record.
    PeerState.JOINING: "is said to load its blocks, but does not answer, or not for hours",
}


@dataclass(frozen=True, slots=True)
class Wish:
    topic: Topic
    prefix: str = ""
    peer_id: str = ""
    target: int = 0


@dataclass(frozen=True)
class Look:
    """`holes` are the titles of open, confirmed gaps by prefix; `blind_since` that of an open blindness, in Unix seconds.
    Thousands of wishes ask one look, so that what they share is worked out once."""

    seen: Watch
    holes: Mapping[str, str] = field(default_factory=dict)
    blind_since: float | None = None

    @property
    def seen_at(self) -> float:
        published = self.seen.published
        return published.snapshot.at if published is not None else self.seen.read_at

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        published = self.seen.published
        return {item.model.prefix: item for item in standings(published)} if published is not None and self.seen.sees else {}

    @cached_property
    def servers(self) -> Mapping[str, Sequence[tuple[str, Server]]]:
        """By peer id, each with the prefix of the model that it serves; those that left lately too."""
        found: dict[str, list[tuple[str, Server]]] = {}
        published = self.seen.published
        if published is not None and self.seen.sees:
            present = [(model.prefix, server) for model in published.snapshot.models for server in model.servers]
            absent = [(prefix, server) for prefix, servers in published.absent.items() for server in servers]
            for prefix, server in (*present, *absent):
                found.setdefault(server.peer_id, []).append((prefix, server))
        return found


def finding(wish: Wish, look: Look) -> Finding:
    found = _found(wish, look)
    # An outage that was announced is no news. What is well is still said, so that an alarm of before can end.
    expected = bool(wish.prefix) and look.seen.rulings.maintenance_of(wish.prefix) is not None
    return _nothing(look) if found.bad and expected else found


def _found(wish: Wish, look: Look) -> Finding:
    return {
        Topic.MODEL: _model,
        Topic.REDUNDANCY: _redundancy,
        Topic.PEER: _peer,
        Topic.BOOTSTRAP: _bootstrap,
        Topic.BLIND: _blind,
        Topic.CANARY: _canary,
    }[wish.topic](wish, look)


def _nothing(look: Look) -> Finding:
    return Finding(None, look.seen.read_at)


def _model(wish: Wish, look: Look) -> Finding:
    item = look.standings.get(wish.prefix)
    if item is None or item.model.unread_blocks:
        return _nothing(look)
    title = look.holes.get(wish.prefix)
    if title is not None:
        return Finding(True, look.seen_at, f"{title}. The model cannot run.")
    # A gap that only one look has seen is neither.
    if item.coverage.holes or item.model.at_least:
        return _nothing(look)
    return Finding(False, look.seen_at, f"{wish.prefix} {item.sentence}.")


def _redundancy(wish: Wish, look: Look) -> Finding:
    item = look.standings.get(wish.prefix)
    if item is None:
        return _nothing(look)
    known = [(block.index, block.redundancy) for block in item.coverage.blocks if block.redundancy is not None]
    low = [block for block, servers in known if servers < wish.target]
    if low:
        fewest = min(servers for _, servers in known)
        words = f"{wish.prefix}: {in_words(runs(low))} below the target of {wish.target}; the fewest is {fewest}."
        return Finding(True, look.seen_at, words)
    if item.coverage.unseen:
        return _nothing(look)
    return Finding(False, look.seen_at, f"{wish.prefix}: every block has {wish.target} or more servers.")


def _peer(wish: Wish, look: Look) -> Finding:
    found = look.servers.get(wish.peer_id, ())
    name = f"Server …{wish.peer_id[-6:]}"
    up = [(prefix, server) for prefix, server in found if server.state is PeerState.ONLINE or server.awaited]
    if up:
        prefix, server = up[0]
        return Finding(False, look.seen_at, f"{name} is {server.state.value}: {server.span.in_words()} of {prefix}.")
    lost = [(prefix, server) for prefix, server in found if server.state in _LOST and not server.awaited]
    if not lost or len(lost) < len(found):
        return _nothing(look)  # Never seen, or not checked in one of its models.
    return Finding(True, look.seen_at, f"{name} {_lost(lost)}")


def _lost(lost: list[tuple[str, Server]]) -> str:
    prefix, server = lost[0]
    wrong = server.visit is not None and server.visit.outcome is Outcome.WRONG_ANSWER
    return f"{'gives wrong answers' if wrong else _LOST[server.state]}: {server.span.in_words()} of {prefix}."


def _bootstrap(wish: Wish, look: Look) -> Finding:
    last = look.seen.last_crawl
    if last is None or not last.bootstraps:
        return _nothing(look)
    if look.seen.read_at - last.finished_at > MISSED_INTERVALS * look.seen.interval_s:
        return _nothing(look)
    down = sorted(peer for peer, up in last.bootstraps.items() if not up)
    total = len(last.bootstraps)
    if not down:
        return Finding(False, last.finished_at, f"All {total} bootstrap peers answer.")
    listed = ", ".join(f"…{peer[-6:]}" for peer in down)
    if len(down) == total:
        why = "they are down, and nobody can join, or the monitor is cut off"
        words = f"None of the {total} bootstrap peers answers ({listed}): {why}."
        return Finding(True, last.finished_at, words, level=2)
    return Finding(True, last.finished_at, f"{len(down)} of {total} bootstrap peers do not answer ({listed}).")


def _canary(wish: Wish, look: Look) -> Finding:
    """A run is a look of its own, so that a second one must bear it out; it needs no crawl that sees the swarm."""
    published = look.seen.published
    canary = published.canaries.get(wish.prefix) if published is not None else None
    if canary is None or look.seen.read_at - canary.at > CANARY_COUNTS_S:
        return _nothing(look)
    if canary.outcome == "expected":
        return Finding(False, canary.at, f"The canary through {wish.prefix} was answered as expected.")
    if canary.outcome == "unexpected":
        through = ", ".join(f"…{peer[-6:]}" for peer in canary.peers) or "servers that it did not name"
        return Finding(True, canary.at, f"The canary through {wish.prefix} got an unexpected answer, by {through}.")
    why = canary.detail or "the reason is not known"
    return Finding(True, canary.at, f"The canary through {wish.prefix} got no answer: {why}.")


def _blind(wish: Wish, look: Look) -> Finding:
    now = look.seen.read_at
    if look.seen.published is None:
        return _nothing(look)  # A monitor that never saw the swarm has not lost sight of it.
    if look.blind_since is not None:
        since = Moment(look.blind_since, now).clock
        return Finding(
            True,
            now,
            f"The monitor has not seen the swarm since {since}. This says nothing about the servers. No downtime is counted.",
        )
    return Finding(False, now, "The monitor sees the swarm again.") if look.seen.sees else _nothing(look)
