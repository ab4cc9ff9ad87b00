"""When an incident begins and ends. Pure: what is open and what one crawl saw go in, what is open and what ended come out.

- A block without a server in two crawls in a row is a hole; a block with one server for half an hour is a warning.
- A block that could not be read neither begins nor ends anything.
- What is not confirmed when the monitor loses sight begins anew afterwards: nobody saw it last.
- Blindness is when pages say "unknown" for age. It is an incident of the monitor and never one of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from swarm.coverage import Coverage, coverage
from swarm.snapshot import Model, Outcome, PeerState, Server
from swarm.wire.spans import in_words, runs

THIN_FOR_S = 1_800.0
"""One server alone is a warning after this long: servers restart and move, and that is no news."""
NAMED_AT_MOST = 50
"""Servers that are named as gone or come: a swarm that loses more than that did not lose them one by one."""


class Kind(StrEnum):
    HOLE = "hole"
    THIN = "thin"
    BLIND = "blind"


class How(StrEnum):
    """How a server left. Only the first is a goodbye."""

    NORMALLY = "left normally"
    MOVED = "moved to other blocks"
    SILENT = "stopped answering"
    VANISHED = "its announcement ran out"
    JOINING = "is loading again"
    QUARANTINED = "was set aside by the site's staff"
    WRONG = "gave wrong answers"


@dataclass(frozen=True, slots=True)
class Bounds:
    """It happened after `after` (None: nobody had looked) and was first seen at `before`."""

    after: float | None
    before: float


@dataclass(frozen=True, slots=True)
class Departure:
    peer_id: str
    how: How
    at: float
    blocks: str


@dataclass(frozen=True, slots=True)
class Arrival:
    peer_id: str
    blocks: str


@dataclass(frozen=True, slots=True)
class Ongoing:
    """`current` are the blocks in trouble now; `blocks` all that were confirmed to be."""

    kind: Kind
    start: Bounds
    bad_at: float
    confirmed_at: float | None = None
    blocks: frozenset[int] = frozenset()
    current: Mapping[int, Bounds] = field(default_factory=dict)
    left: tuple[Departure, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    incident: Ongoing
    at: float
    restored: tuple[Arrival, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One crawl of one model, and the servers as the crawl before had them (None: it did not have the model)."""

    model: Model
    at: float
    earlier: tuple[Server, ...] = ()
    earlier_at: float | None = None
    blind_after_s: float = 90.0

    @property
    def lost_sight(self) -> bool:
        return self.earlier_at is None or self.at - self.earlier_at > self.blind_after_s


@dataclass(frozen=True, slots=True)
class Changes:
    """`open` replaces what was open. What is in neither list was a suspicion that did not come true."""

    open: tuple[Ongoing, ...] = ()
    ended: tuple[Ended, ...] = ()


def advance(open_incidents: Iterable[Ongoing], seen: Seen) -> Changes:
    before = {incident.kind: incident for incident in open_incidents}
    covered = coverage(seen.model)
    still: list[Ongoing] = []
    ended: list[Ended] = []
    for kind in (Kind.HOLE, Kind.THIN):
        known = before.get(kind)
        if known is not None and known.confirmed_at is None and seen.lost_sight:
            known = None
        bad = _bad(kind, covered, known)
        current = _current(known, bad, covered, seen)
        if current:
            still.append(_standing(kind, known, current, bad, seen))
        elif known is not None and known.confirmed_at is not None:
            ended.append(Ended(replace(known, current={}), seen.at, _arrivals(known, seen)))
    return Changes(tuple(still), tuple(ended))


def _bad(kind: Kind, covered: Coverage, known: Ongoing | None) -> frozenset[int]:
    if kind is Kind.HOLE:
        return frozenset(block.index for block in covered.blocks if block.redundancy == 0)
    # A block that loses its one server too has not been restored.
    worse = frozenset(known.current) if known else frozenset()
    return frozenset(b.index for b in covered.blocks if b.redundancy == 1 or (b.redundancy == 0 and b.index in worse))


def _current(known: Ongoing | None, bad: frozenset[int], covered: Coverage, seen: Seen) -> dict[int, Bounds]:
    before = known.current if known else {}
    unread = {block.index for block in covered.blocks if block.redundancy is None}
    fresh = Bounds(seen.earlier_at, seen.at)
    return {block: before.get(block, fresh) for block in sorted(bad | (set(before) & unread))}


def _standing(kind: Kind, known: Ongoing | None, current: dict[int, Bounds], bad: frozenset[int], seen: Seen) -> Ongoing:
    confirmed = {block for block in bad if _confirms(kind, current[block], seen.at)}
    fresh = frozenset(block for block, bounds in current.items() if bounds.before == seen.at)
    left = (*(known.left if known else ()), *_departures(fresh, seen))[:NAMED_AT_MOST]
    first = min((current[block] for block in confirmed or current), key=lambda bounds: bounds.before)
    open_already = known is not None and known.confirmed_at is not None
    return Ongoing(
        kind=kind,
        start=known.start if known is not None and open_already else first,
        bad_at=seen.at if bad or known is None else known.bad_at,
        confirmed_at=known.confirmed_at if known is not None and open_already else (seen.at if confirmed else None),
        blocks=(known.blocks if known else frozenset()) | confirmed,
        current=current,
        left=left,
    )


def _confirms(kind: Kind, bounds: Bounds, at: float) -> bool:
    return bounds.before < at if kind is Kind.HOLE else at - bounds.before >= THIN_FOR_S


def _departures(fresh: frozenset[int], seen: Seen) -> tuple[Departure, ...]:
    """Servers that were online on these blocks in the crawl before, and are not in this one."""
    now = {server.peer_id: server for server in seen.model.servers}
    found = []
    for server in seen.earlier:
        current = now.get(server.peer_id)
        lost = fresh & set(server.span)
        if current is not None and current.state is PeerState.ONLINE:
            lost -= set(current.span)
        if server.state is PeerState.ONLINE and lost:
            found.append(Departure(server.peer_id, _how(server, current), seen.at, in_words(runs(lost))))
    return tuple(found)


def _how(before: Server, now: Server | None) -> How:
    if now is None:
        return How.VANISHED
    if now.quarantined:
        return How.QUARANTINED
    if now.visit is not None and now.visit.outcome is Outcome.WRONG_ANSWER:
        return How.WRONG
    if now.state is PeerState.LEAVING:
        return How.NORMALLY
    if now.state in (PeerState.ONLINE, PeerState.JOINING):
        return How.MOVED if now.span != before.span else How.JOINING
    return How.SILENT


def _arrivals(known: Ongoing, seen: Seen) -> tuple[Arrival, ...]:
    """Servers online on the blocks that were in trouble, which the crawl before did not have there."""
    earlier = {server.peer_id: server.span for server in seen.earlier if server.state is PeerState.ONLINE}
    found = []
    for server in seen.model.servers:
        had = earlier.get(server.peer_id)
        gained = set(known.current) & set(server.span) - (set(had) if had else set())
        if server.state is PeerState.ONLINE and gained:
            found.append(Arrival(server.peer_id, in_words(runs(gained))))
    return tuple(found[:NAMED_AT_MOST])


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the swarm, or at the clock where no crawl ran. `saw` is whether a snapshot was published at `at`."""

    at: float
    saw: bool
    last_seen_at: float | None
    interval_s: float
    blind_after_s: float

    @property
    def set_back(self) -> bool:
        """Whether the clock was, since the swarm was seen last: how long ago that is nobody knows."""
        return self.last_seen_at is not None and self.at < self.last_seen_at


def advance_blindness(ongoing: Ongoing | None, look: Look) -> Changes:
    if look.last_seen_at is None:
        return Changes()  # A monitor that never saw the swarm has not lost sight of it.
    if look.set_back:
        open_still = (ongoing,) if ongoing is not None else ()
        return Changes(ended=tuple(Ended(item, look.at) for item in open_still)) if look.saw else Changes(open=open_still)
    blind = look.at - look.last_seen_at > look.blind_after_s
    if ongoing is None and blind:
        start = Bounds(look.last_seen_at, min(look.last_seen_at + look.interval_s, look.at))
        ongoing = Ongoing(Kind.BLIND, start, bad_at=start.before, confirmed_at=look.at)
    if ongoing is None:
        return Changes()
    if look.saw and look.at <= ongoing.start.before:
        return Changes()  # A slow crawl had seen it all the while, and only its report came late.
    if look.saw:
        return Changes(ended=(Ended(replace(ongoing, bad_at=min(ongoing.bad_at, look.at)), look.at),))
    return Changes(open=(replace(ongoing, bad_at=max(ongoing.bad_at, look.at)),))
