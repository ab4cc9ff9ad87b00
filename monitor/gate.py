"""Is this crawl believable? Publish it, or hold the last snapshot, with the reason.

A mass change means first of all that the observer is sick. A loss that is real shows again through another entry peer, or in
a second crawl, and is then published. Pure: knows no DHT, no database and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from monitor.crawl import CrawlReport
from monitor.published import Published
from swarm.snapshot import Model, Outcome, PeerState, Server, Snapshot

Lost = frozenset[tuple[str, str]]
"""Servers that were online and are not any more, or left blocks behind that nobody has now: prefix and peer id."""

MASS_LOSS = 2
MASS_LOSS_SHARE = 0.5
"""So many of the servers, and so large a share of them or of one model's blocks, do not vanish within one interval where the
monitor is well. A single server does: its loss is published at once."""
FAST_FACTOR = 4.0
SLOW_ENOUGH_S = 2.0
"""A crawl of a quarter of the last one's time that also misses servers probably stopped early. Crawls shorter than this vary
by chance."""
MUCH_UNREAD = 0.5
"""With so large a share of the keys unread, what is missing was not looked at."""
CONFIRMS_FOR_INTERVALS = 3.0
"""A second crawl later than that says nothing about the first."""
AGREEING = 0.5
"""Two crawls speak of the same loss where they share so much of what they miss."""


_PARTING = (PeerState.JOINING, PeerState.LEAVING)


class Suspicion(StrEnum):
    CANARY = "canary"
    BOOTSTRAPS = "bootstraps"
    UNREAD = "unread"
    FAST = "fast"
    FORGOTTEN = "forgotten"
    LOSS = "loss"


SAW = (Suspicion.FAST, Suspicion.FORGOTTEN, Suspicion.LOSS)
"""Crawls held back for these read the swarm; the others could not, or we cannot know that they could."""


@dataclass(frozen=True, slots=True)
class Publish:
    """`confirmed` says how a doubt was settled, where there was one."""

    confirmed: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """`confirmable` is False where a second look of the same kind would prove nothing."""

    reason: str
    suspicion: Suspicion
    lost: Lost = frozenset()
    confirmable: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """The newest crawl that was held back since the last published one. `at` is when it started, in Unix seconds, and
    `seeing_since` when the first of them did that could read the swarm, if any."""

    at: float
    suspicion: Suspicion
    lost: Lost
    seeing_since: float | None = None


Verdict = Publish | Hold


def judge(previous: Published | None, report: CrawlReport, held: Held | None = None) -> Verdict:
    """`held` is what was held back since `previous` was published. A failed crawl is not to be judged."""
    return _judge(previous, report, held, _seeing_since(held, report))


def _seeing_since(held: Held | None, report: CrawlReport) -> float:
    return held.seeing_since if held is not None and held.seeing_since is not None else report.started_at


def _judge(previous: Published | None, report: CrawlReport, held: Held | None, seeing_since: float) -> Verdict:
    assert report.snapshot is not None
    lost = lost_between(previous.snapshot, report.snapshot) if previous is not None else frozenset()
    doubt = next(_doubts(previous, report, report.snapshot, lost, seeing_since), None)
    if doubt is None:
        return Publish()
    if doubt.confirmable and held is not None and previous is not None:
        recent = 0 <= report.started_at - held.at <= CONFIRMS_FOR_INTERVALS * previous.interval_s
        if recent and held.suspicion is not Suspicion.CANARY and agree(held.lost, doubt.lost):
            return Publish(confirmed=f"a second check found the same: {doubt.reason}")
    return doubt


def settle(
    previous: Published | None, first: CrawlReport, doubt: Hold, second: CrawlReport, held: Held | None = None
) -> tuple[CrawlReport, Verdict]:
    """What to do with a doubtful crawl, now that the swarm was also read through another entry peer. `held` as for `judge`."""
    if second.snapshot is None:
        return first, doubt
    verdict = _judge(previous, second, None, _seeing_since(held, first))
    if isinstance(verdict, Publish):
        return second, Publish(confirmed=f"read through another bootstrap peer, after a doubtful check: {doubt.reason}")
    if doubt.confirmable and verdict.confirmable and agree(doubt.lost, verdict.lost):
        return second, Publish(confirmed=f"another bootstrap peer shows the same: {doubt.reason}")
    return first, doubt


def applied(report: CrawlReport, verdict: Verdict) -> CrawlReport:
    """The report as it is to be stored."""
    if isinstance(verdict, Publish):
        return replace(report, confirmed=verdict.confirmed)
    return replace(report, held=verdict.reason, suspicion=verdict.suspicion.value, lost=verdict.lost)


def lost_between(before: Snapshot, now: Snapshot) -> Lost:
    """Servers that were online and neither answer now nor answered that they leave or load other blocks; and those that still
    answer, but not for blocks that they had and that nobody has now."""
    still = {(model.prefix, server.peer_id) for model in now.models for server in model.servers if _still_there(server)}
    return frozenset(online(before) - still) | _shrunk(before, now)


def _still_there(server: Server) -> bool:
    """A record that says that a server leaves or loads is no farewell of its own: anyone may write it while we are blind."""
    heard = server.visit is not None and server.visit.answered
    return server.state is PeerState.ONLINE or (server.state in _PARTING and heard)


def _shrunk(before: Snapshot, now: Snapshot) -> Lost:
    found: set[tuple[str, str]] = set()
    for model in now.models:
        answering = {server.peer_id: server.span for server in model.servers if server.state is PeerState.ONLINE}
        earlier = before.model(model.prefix)
        bare = _covered(earlier) - _covered(model) - model.unread_blocks if earlier is not None else frozenset()
        for server in earlier.servers if earlier is not None and bare else ():
            if server.state is PeerState.ONLINE and server.peer_id in answering and not bare.isdisjoint(server.span):
                found.add((model.prefix, server.peer_id))
    return frozenset(found)


def _covered(model: Model) -> frozenset[int]:
    return frozenset(block for server in model.servers if server.state is PeerState.ONLINE for block in server.span)


def online(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {
        (model.prefix, server.peer_id)
        for model in snapshot.models
        for server in model.servers
        if server.state is PeerState.ONLINE
    }


def is_mass(lost: Lost, before: Snapshot, now: Snapshot) -> bool:
    return len(lost) >= MASS_LOSS and (len(lost) >= MASS_LOSS_SHARE * len(online(before)) or _bared(lost, before, now))


def _bared(lost: Lost, before: Snapshot, now: Snapshot) -> bool:
    """Whether so large a share of one model's blocks has no server any more, and that by the loss of several."""
    for earlier in before.models:
        model, had = now.model(earlier.prefix), _covered(earlier)
        unread = model.unread_blocks if model is not None else frozenset()
        gone = had - (_covered(model) if model is not None else frozenset()) - unread
        several = sum(prefix == earlier.prefix for prefix, _ in lost) >= MASS_LOSS
        if several and len(gone) >= MASS_LOSS_SHARE * len(had):
            return True
    return False


def agree(first: Lost, second: Lost) -> bool:
    if not first and not second:
        return True
    return len(first & second) >= AGREEING * max(len(first), len(second))


def _doubts(
    previous: Published | None, report: CrawlReport, snapshot: Snapshot, lost: Lost, seeing_since: float
) -> Iterator[Hold]:
    """Every reason for doubt, the gravest first."""
    if report.canary is False:
        yield Hold("the monitor could not read back a key that it had just written itself", Suspicion.CANARY, lost)
    if previous is None:
        return
    up, total = sum(report.bootstraps.values()), len(report.bootstraps)
    mass = is_mass(lost, previous.snapshot, snapshot)
    if total and not up and (lost or previous.crawl.bootstraps_up):
        # Where the servers still answer, the swarm lives without them, as a second crawl confirms. Otherwise it may be us.
        yield Hold("none of the bootstrap peers answered", Suspicion.BOOTSTRAPS, lost, confirmable=not mass)
    if not lost:
        return
    were = len(online(previous.snapshot))
    words = f"{len(lost)} of {were} servers were gone{_or_smaller(lost, snapshot)} at once"
    if up and 2 * up < total:
        yield Hold(f"only {up} of {total} bootstrap peers answered, and {words}", Suspicion.BOOTSTRAPS, lost, confirmable=True)
    keys = sum(model.num_blocks for model in snapshot.models)
    if report.keys_unread > MUCH_UNREAD * keys:
        yield Hold(f"{report.keys_unread} of {keys} keys could not be read, and {words}", Suspicion.UNREAD, lost)
    duration_s, before_s = report.finished_at - report.started_at, previous.crawl.duration_s
    if before_s >= SLOW_ENOUGH_S and duration_s < before_s / FAST_FACTOR:
        took = f"it ended after {duration_s:.1f} s where the last one took {before_s:.1f} s"
        yield Hold(f"{took}, and {words}", Suspicion.FAST, lost, confirmable=True)
    if mass:
        blind_s = max(0.0, seeing_since - previous.snapshot.at - previous.interval_s)
        forgotten = _forgotten(lost, previous.snapshot, snapshot, blind_s)
        if 2 * len(forgotten) > len(lost) and len(forgotten) >= MASS_LOSS_SHARE * were:
            still = forgotten == _forgotten(lost, previous.snapshot, snapshot)
            ran = "have not run out" if still else "had not run out when the swarm was last seen"
            why = f"{words}, though announcements of {len(forgotten)} of them {ran}: the DHT has forgotten them"
            # No second look helps before those announcements have run out, or have been made again. A DHT forgets everybody:
            # who announces far ahead and leaves with a friend holds back nobody else.
            yield Hold(why, Suspicion.FORGOTTEN, lost)
        yield Hold(words, Suspicion.LOSS, lost, confirmable=True)


def _or_smaller(lost: Lost, now: Snapshot) -> str:
    return " or held fewer blocks" if lost & online(now) else ""


def _forgotten(lost: Lost, before: Snapshot, now: Snapshot, blind_s: float = 0.0) -> Lost:
    """Servers that nobody can find, though the DHT should still hold what they announced. A server that dies leaves its record
    and its addresses behind until the record runs out; a DHT that was restarted loses those of all at once.

    A record that ran out while we were blind may have been renewed where we could not see it, in a DHT that is no more: from
    then on that we see again it counts for what it had left."""
    last = {(model.prefix, server.peer_id): server for model in before.models for server in model.servers}
    seen = {(model.prefix, server.peer_id): server for model in now.models for server in model.servers}
    return frozenset(key for key in lost if last[key].expires_at + blind_s > now.at and _unfindable(seen.get(key)))


def _unfindable(server: Server | None) -> bool:
    if server is None:
        return True
    return server.state not in _PARTING and server.visit is not None and server.visit.outcome is Outcome.NO_ADDRESS
