"""Latest snapshot + open leases -> planner -> a lease, or "stay", always with a reason.

The coordinator advises only while it sees: with a stale snapshot, or none, every answer is to stay. One question at a time is
answered for a model (an advisory lock in Postgres), so that each answer counts the promise made just before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from coordinator import leases
from coordinator.models import Follower, Lease, Phase
from monitor.queries import latest_snapshot
from swarm.placement import Advice, Promise, advise, find_holes, still_useful, without
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, ReasonCode
from swarm.wire.spans import Span

RETRY_AFTER_S = 30.0
RETRY_SOON_S = 5.0
FOLLOWER_LIFE = timedelta(seconds=180)
"""A server that has not asked for this long is not counted on to follow a hint."""


def answer(swarm: str, request: HintRequest, now: datetime) -> HintAnswer:
    """What `request.peer` should do. Records the heartbeat; an offer is in Postgres before it is answered."""
    with transaction.atomic():
        _one_at_a_time(swarm, request.model)
        note_heartbeat(swarm, request, now)
        published = latest_snapshot(swarm)
        if published is None:
            return _stay(ReasonCode.BLIND, "the monitor has not seen this swarm yet", RETRY_SOON_S)
        if published.stale:
            return _stay(ReasonCode.BLIND, "the monitor cannot see the swarm at the moment; it advises nothing until it does")
        model = published.snapshot.model(request.model)
        if model is None:
            return _stay(ReasonCode.UNKNOWN_MODEL, f"the monitor has not seen {request.model} in this swarm yet", RETRY_SOON_S)
        seen_at = datetime.fromtimestamp(published.snapshot.at, UTC)
        leases.settle(swarm, model, seen_at, now)
        held = Lease.objects.of_model(swarm, request.model).open().filter(peer_id=request.peer).first()
        if held is not None:
            return _standing(held, request, now)
        return _fresh(swarm, request, model, seen_at, now)


def accept(swarm: str, lease: Lease, now: datetime) -> LeaseReply:
    """Before the server unloads anything: does the swarm still want this move?"""
    with transaction.atomic():
        _one_at_a_time(swarm, lease.prefix)
        published = latest_snapshot(swarm)
        model = None if published is None or published.stale else published.snapshot.model(lease.prefix)
        if published is None or model is None:
            leases.close(lease, Phase.STALE, "the monitor went blind", now)
            return LeaseReply(outcome="stale", reason="the monitor cannot see the swarm at the moment")
        seen_at = datetime.fromtimestamp(published.snapshot.at, UTC)
        promises = _promises(swarm, model, seen_at, but=lease.peer_id)
        objection = still_useful(model, lease.peer_id, lease.span, lease.origin, promises)
        if objection is not None:
            leases.close(lease, Phase.STALE, objection, now)
            return LeaseReply(outcome="stale", reason=objection)
        if leases.accept(lease, now):
            return LeaseReply(outcome="ok", reason=lease.reason)
        return LeaseReply(outcome="stale", reason="the lease has run out or is closed")


def _fresh(swarm: str, request: HintRequest, model: Model, seen_at: datetime, now: datetime) -> HintAnswer:
    serving = request.current.to_span() if request.current else None
    promises = _promises(swarm, model, seen_at, but=request.peer)
    advice = advise(
        model,
        request.peer,
        request.num_blocks_max if serving is None else request.num_blocks,
        serving=serving,
        promises=promises,
        movable=_followers(swarm, request.model, now),
    )
    if advice.placement is None:
        return _stay(advice.reason_code, advice.reason)
    filled = _filled(model, request.peer, promises, advice)
    lease = leases.offer(swarm, request.model, request.peer, advice.placement, filled, serving, now)
    if lease is None:
        return _stay(ReasonCode.OTHER_SERVER_MOVES, "another server was given these blocks a moment ago", RETRY_SOON_S)
    return _standing(lease, request, now)


def _filled(model: Model, peer_id: str, promises: tuple[Promise, ...], advice: Advice) -> list[int]:
    """The blocks of the advised span that nobody else serves or has promised."""
    assert advice.placement is not None
    holes = {block for hole in find_holes(without(model, peer_id), promises) for block in hole}
    return [block for block in advice.placement.span if block in holes] if advice.reason_code is ReasonCode.HOLE else []


def _promises(swarm: str, model: Model, seen_at: datetime, but: str) -> tuple[Promise, ...]:
    """Open leases, and heartbeats newer than the snapshot from servers that it does not show where they say they are."""
    promises = {promise.peer_id: promise for promise in leases.open_promises(swarm, model.prefix)}
    shown = {server.peer_id: server.span for server in model.servers}
    for follower in Follower.objects.filter(swarm=swarm, prefix=model.prefix, asked_at__gt=seen_at):
        span = follower.span
        if span is not None and follower.peer_id not in promises and not _shown(shown.get(follower.peer_id), span):
            promises[follower.peer_id] = Promise(follower.peer_id, span)
    return tuple(promises[peer_id] for peer_id in sorted(promises) if peer_id != but)


def _shown(shown: Span | None, claimed: Span) -> bool:
    return shown is not None and shown.covers(claimed)


def _followers(swarm: str, prefix: str, now: datetime) -> frozenset[str]:
    recent = Follower.objects.filter(swarm=swarm, prefix=prefix, asked_at__gt=now - FOLLOWER_LIFE)
    return frozenset(recent.values_list("peer_id", flat=True))


def note_heartbeat(swarm: str, request: HintRequest, now: datetime) -> None:
    Follower.objects.update_or_create(
        swarm=swarm,
        prefix=request.model,
        peer_id=request.peer,
        defaults={
            "num_blocks_max": request.num_blocks_max,
            "start": request.current.start if request.current else None,
            "end": request.current.end if request.current else None,
            "asked_at": now,
        },
    )


def _one_at_a_time(swarm: str, prefix: str) -> None:
    """Held until the transaction ends. `hashtextextended` makes the lock's number out of the names."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lease {swarm} {prefix}"])


def _standing(lease: Lease, request: HintRequest, now: datetime) -> HintAnswer:
    """The answer while a lease is open. A server that serves nothing gets it again: it was restarted while it loaded."""
    code = ReasonCode(lease.reason_code)
    if lease.phase == Phase.ACCEPTED and request.current is not None:
        return _stay(ReasonCode.LEASE_OPEN, f"its move to {lease.span.in_words()} is under way: {lease.reason}")
    document = leases.to_document(lease, now)
    return HintAnswer(advice="move", reason_code=code, reason=lease.reason, retry_after_s=RETRY_AFTER_S, lease=document)


def _stay(reason_code: ReasonCode, reason: str, retry_after_s: float = RETRY_AFTER_S) -> HintAnswer:
    return HintAnswer(advice="stay", reason_code=reason_code, reason=reason, retry_after_s=retry_after_s)
