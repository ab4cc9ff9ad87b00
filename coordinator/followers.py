"""Servers that ask for hints: their heartbeats, what they claim to serve, and whether they may be asked to move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from coordinator.lease_terms import CLOCKS_DIFFER_S
from coordinator.models import Follower, Lease
from swarm.placement import Promise
from swarm.wire.hints import HintRequest
from swarm.wire.spans import Span

FOLLOWER_LIFE = timedelta(seconds=180)
"""A server that has not asked for this long is not counted on to follow a hint."""

CLAIM_GAP = timedelta(seconds=300)
"""A claim that comes sooner after another one waits for the crawl: no server reloads that often, but a liar changes its words
before each crawl, and would hide a hole for good."""

CLOCKS_DIFFER = timedelta(seconds=CLOCKS_DIFFER_S)

FORGOTTEN_AFTER = timedelta(days=2)

HEARTBEAT = (
    "prefix",
    "num_blocks_max",
    "also",
    "also_on_disk",
    "sessions",
    "start",
    "end",
    "asked_at",
    "claimed_at",
    "claim_counts",
)


def hold(swarm: str, peer_id: str, prefixes: Iterable[str]) -> None:
    """Locks the rows that answering this peer may change, its own and those of peers whose leases of these models may end, in
    one order: of two questions about different models none then waits for the other in a circle."""
    concerned = Lease.objects.filter(swarm=swarm, prefix__in=list(prefixes)).open().values("peer_id")
    rows = Follower.objects.select_for_update().filter(Q(peer_id=peer_id) | Q(peer_id__in=concerned), swarm=swarm)
    # Reading them is what locks them.
    list(rows.order_by("peer_id").values_list("pk", flat=True))


def note_heartbeat(swarm: str, request: HintRequest, now: datetime) -> Follower:
    """What the peer said before, of whatever model, is replaced: it serves one at a time."""
    claimed = request.current.to_span() if request.current else None
    follower, new = Follower.objects.get_or_create(
        swarm=swarm,
        peer_id=request.peer,
        defaults={"prefix": request.model, "num_blocks_max": request.num_blocks_max, "asked_at": now},
    )
    # One from before the clock was set back is dated anew, as if there had been none.
    before = None if _is_ahead(follower.claimed_at, now) else follower.claimed_at
    if claimed is not None and (new or before is None or (claimed, request.model) != (follower.span, follower.prefix)):
        follower.claim_counts = new or before is None or now - before >= CLAIM_GAP
        follower.claimed_at = now
    follower.prefix = request.model
    follower.num_blocks_max = request.num_blocks_max
    follower.also = {other.model: other.num_blocks_max for other in request.also}
    follower.also_on_disk = {
        other.model: [[span.start, span.end] for span in other.on_disk] for other in request.also if other.on_disk
    }
    follower.sessions = request.sessions_active
    follower.start = claimed.start if claimed else None
    follower.end = claimed.end if claimed else None
    follower.asked_at = now
    # Not what `coordinator.pauses` writes, which may happen at the same moment.
    follower.save(update_fields=HEARTBEAT)
    return follower


def _is_ahead(time: datetime | None, now: datetime) -> bool:
    """Whether it was written down before the clock was set back, so that it says nothing of when that was."""
    return time is not None and time - now > CLOCKS_DIFFER


def _recent(swarm: str, prefixes: Iterable[str], now: datetime) -> QuerySet[Follower]:
    asked = Q(asked_at__gt=now - FOLLOWER_LIFE, asked_at__lte=now + CLOCKS_DIFFER)
    return Follower.objects.filter(asked, swarm=swarm, prefix__in=prefixes)


def claims(swarm: str, prefix: str, seen_at: datetime, now: datetime, shown: dict[str, Span]) -> tuple[Promise, ...]:
    """Where servers said that they are, since the snapshot was taken and otherwise than it shows them. A claim from before
    the snapshot counts for nothing: the crawl went there and looked."""
    dated = Q(claimed_at__gt=seen_at, claimed_at__lte=now + CLOCKS_DIFFER)
    newer = Follower.objects.filter(dated, swarm=swarm, prefix=prefix, claim_counts=True, start__isnull=False)
    found = ((follower.peer_id, follower.span) for follower in newer)
    return tuple(
        Promise(peer_id, span)
        for peer_id, span in found
        if span is not None and not ((seen := shown.get(peer_id)) and seen.covers(span))
    )


def movable(
    swarm: str, prefix: str, now: datetime, *, elective: bool = False, shown: Mapping[str, Span] | None = None
) -> frozenset[str]:
    """Peers that can be expected to follow a hint now: to a hole, or (`elective`) to blocks that have servers already.

    Not who says that it is elsewhere than where the crawl saw it (`shown`): it would not be asked to leave from there, and who
    is counted on and not asked keeps all others from being asked.
    """
    pauses_hold = Q(paused_at__isnull=True) | Q(paused_at__lte=now + CLOCKS_DIFFER)
    recent = _recent(swarm, [prefix], now).exclude(pauses_hold, not_before__gt=now)
    if elective:
        recent = recent.filter(sessions=0).exclude(pauses_hold, elective_not_before__gt=now)
    seen = shown or {}
    rows = recent.values_list("peer_id", "start", "end")
    return frozenset(
        peer_id for peer_id, *said in rows if (span := seen.get(peer_id)) is None or said == [span.start, span.end]
    )


def capacities(swarm: str, prefix: str, now: datetime) -> dict[str, int]:
    """How many blocks fit the servers of a model, as they said last. A span may be shorter."""
    recent = _recent(swarm, [prefix], now)
    return dict(recent.values_list("peer_id", "num_blocks_max"))


def offers(
    swarm: str, prefixes: Iterable[str], now: datetime
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, tuple[Span, ...]]]]:
    """Of servers of these models that can be asked: the other models that they offer, each with the blocks that fit, and what
    they need not download of each."""
    recent = _recent(swarm, prefixes, now).exclude(also={})
    rows = list(recent.values_list("peer_id", "also", "also_on_disk"))
    disks = {
        peer_id: {prefix: tuple(Span(start, end) for start, end in spans) for prefix, spans in kept.items()}
        for peer_id, _, kept in rows
    }
    return {peer_id: also for peer_id, also, _ in rows}, disks


def busy(swarm: str, prefix: str, now: datetime) -> frozenset[str]:
    """Servers of a model that say that sessions are open on them."""
    recent = _recent(swarm, [prefix], now).filter(sessions__gt=0)
    return frozenset(recent.values_list("peer_id", flat=True))


def forget(now: datetime) -> None:
    Follower.objects.filter(asked_at__lt=now - FORGOTTEN_AFTER).delete()
