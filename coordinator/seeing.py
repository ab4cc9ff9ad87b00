"""One model as the monitor sees it now, with what is promised to it and who is about to leave it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from coordinator import followers, leases, watching
from coordinator.answering import RETRY_SOON_S, stay
from coordinator.known import circumstances
from coordinator.watching import Watching, everyone
from swarm.placement import Circumstances, Promise
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, ReasonCode
from swarm.wire.spans import Span


@dataclass(frozen=True, slots=True)
class Seen:
    """`model` is the snapshot's, `counted` as the planner is to count on it."""

    swarm: str
    model: Model
    counted: Model
    at: datetime
    now: datetime
    known: Circumstances
    quarantined: Mapping[str, str]

    def planned(self, but: str) -> Model:
        """Without servers that go to another model, whether they have accepted yet or not; `but` is the asking peer."""
        going = leases.leaving(self.swarm, self.model.prefix).keys() - {but}
        if not going:
            return self.counted
        return replace(self.counted, servers=tuple(server for server in self.counted.servers if server.peer_id not in going))

    @property
    def shown(self) -> dict[str, Span]:
        """Where the crawl saw each server."""
        return {server.peer_id: server.span for server in self.model.servers}

    def promises(self, but: str) -> tuple[Promise, ...]:
        """Open leases, and claims newer than the snapshot; without those of the asking peer itself, of peers in quarantine,
        whose word counts for nothing, and of those that are about to leave for another model."""
        promised = {promise.peer_id: promise for promise in leases.open_promises(self.swarm, self.counted, self.now)}
        for claim in followers.claims(self.swarm, self.model.prefix, self.at, self.now, self.shown):
            promised.setdefault(claim.peer_id, claim)
        passed_over = {but, *self.quarantined, *leases.leaving(self.swarm, self.model.prefix)}
        return tuple(promised[peer_id] for peer_id in sorted(promised) if peer_id not in passed_over)

    def movable(self, *, elective: bool = False) -> frozenset[str]:
        """Whom to count on for a hole, or for a move that fills none."""
        able = followers.movable(self.swarm, self.model.prefix, self.now, elective=elective, shown=self.shown)
        return able - set(self.quarantined)

    def capacities(self) -> dict[str, int]:
        return followers.capacities(self.swarm, self.model.prefix, self.now)

    def barred(self, peer_id: str) -> str:
        why = self.quarantined.get(peer_id)
        return f"this server is in quarantine here, and gets no hints: {why}" if why else ""


def prepare(swarm: str) -> None:
    """Before a model's lock is taken: another crawl is read while others are answered, and nobody waits for it."""
    watching.prepare(swarm)


def look(swarm: str, prefixes: Collection[str], now: datetime) -> dict[str, Seen | HintAnswer]:
    """What the monitor sees of each model, or why nothing can be advised about it. One snapshot for all of them."""
    watched = everyone(swarm)
    return {prefix: _look(watched, prefix, now) for prefix in prefixes}


def is_known(swarm: str, prefix: str) -> bool:
    """Whether the monitor has seen the model, may what it saw be believed now or not."""
    published = everyone(swarm).watch.published
    return published is not None and published.snapshot.model(prefix) is not None


def _look(watched: Watching, prefix: str, now: datetime) -> Seen | HintAnswer:
    watch, published = watched.watch, watched.watch.published
    if published is None:
        return stay(ReasonCode.BLIND, "the monitor has not seen this swarm yet", RETRY_SOON_S)
    if published.stale:
        return stay(ReasonCode.BLIND, "the monitor cannot see the swarm at the moment; it advises nothing until it does")
    model = published.snapshot.model(prefix)
    if model is None:
        return stay(ReasonCode.UNKNOWN_MODEL, f"the monitor has not seen {prefix} in this swarm yet", RETRY_SOON_S)
    at = datetime.fromtimestamp(published.snapshot.at, UTC)
    facts = watched.facts(published, model, now)
    known = circumstances(watch.swarm, model, facts.standing, now)
    return Seen(watch.swarm, model, facts.counted, at, now, known, watch.rulings.quarantined)
