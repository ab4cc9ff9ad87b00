"""Latest snapshot + open leases -> planner -> a lease, or "stay", always with a reason.

The coordinator advises only while it sees: with a stale snapshot, or none, every answer is to stay. One question at a time is
answered for a model (an advisory lock in Postgres), so that each answer counts the promise made just before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from django.db import connection, transaction

from coordinator import explain, followers, leases, plans, signs
from coordinator.known import cautious, circumstances
from coordinator.models import Follower, Lease, Phase
from coordinator.tallies import STAY, tally
from monitor.queries import watch_everyone
from swarm.placement import Advice, Circumstances, Pace, Promise, advise, find_holes, still_useful, without
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, LeaseStep, ReasonCode, SpanDocument
from swarm.wire.spans import Span

RETRY_AFTER_S = 30.0
RETRY_SOON_S = 5.0
QUARANTINED_SINCE = "this server has been quarantined"

RETRY_BARRED_S = 300.0
"""A quarantine lasts for hours; asking twice a minute helps nobody."""

OPEN_LEASES_OF_AN_ADDRESS = 32
"""A site with more servers that all load at once has the rest wait a little; a crowd of made-up peers holds no more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One model as the monitor sees it now, `planned` as the planner is to see it, and the promises that are open on it."""

    swarm: str
    model: Model
    planned: Model
    at: datetime
    now: datetime
    known: Circumstances
    quarantined: Mapping[str, str]

    def promises(self, but: str) -> tuple[Promise, ...]:
        """Open leases, and claims newer than the snapshot; without those of the asking peer itself, and of peers in quarantine,
        whose word counts for nothing."""
        promised = {promise.peer_id: promise for promise in leases.open_promises(self.swarm, self.model.prefix)}
        shown = {server.peer_id: server.span for server in self.model.servers}
        for claim in followers.claims(self.swarm, self.model.prefix, self.at, shown):
            promised.setdefault(claim.peer_id, claim)
        return tuple(promised[peer_id] for peer_id in sorted(promised) if peer_id not in (but, *self.quarantined))

    def barred(self, peer_id: str) -> str:
        why = self.quarantined.get(peer_id)
        return f"this server is in quarantine here, and gets no hints: {why}" if why else ""


def answer(swarm: str, request: HintRequest, now: datetime, asked_from: str = "") -> HintAnswer:
    """What `request.peer`, which has proved to be it, should do. Records the heartbeat; an offer is in Postgres before it is
    answered. `asked_from` is a digest of the asker's address."""
    with transaction.atomic():
        _one_at_a_time(swarm, request.model)
        seen = _look(swarm, request.model, now)
        if isinstance(seen, HintAnswer):
            return seen
        follower = followers.note_heartbeat(swarm, request, now)
        signs.note_sessions(swarm, request.model, request.peer, request.sessions_active, now)
        leases.settle(swarm, seen.model, seen.at, now)
        _take_back(seen)
        held = Lease.objects.of_model(swarm, request.model).open().filter(peer_id=request.peer).first()
        if barred := seen.barred(request.peer):
            given = _stay(ReasonCode.QUARANTINED, barred, RETRY_BARRED_S)
        else:
            given = _standing(held, request, now) if held else _fresh(seen, request, follower, asked_from)
        if given.lease is None:
            tally(swarm, request.model, f"{STAY}-{given.reason_code}", now)
        return given


def look(swarm: str, request: HintRequest, now: datetime, why_no_lease: str) -> HintAnswer:
    """The same advice for someone who has not proved to be that peer: nothing is promised, nothing recorded."""
    seen = _look(swarm, request.model, now)
    if isinstance(seen, HintAnswer):
        return seen.model_copy(update={"no_lease_because": why_no_lease})
    if barred := seen.barred(request.peer):
        return _stay(ReasonCode.QUARANTINED, barred, RETRY_BARRED_S)
    advice = _advise(seen, request, seen.promises(but=request.peer))
    if advice.placement is None:
        return _stay(advice.reason_code, advice.reason).model_copy(update={"no_lease_because": why_no_lease})
    return _move(advice, why_no_lease)


def accept(swarm: str, lease: Lease, step: LeaseStep, now: datetime) -> LeaseReply:
    """Before the server unloads anything: does the swarm still want this move?"""
    with transaction.atomic():
        _one_at_a_time(swarm, lease.prefix)
        seen = _look(swarm, lease.prefix, now)
        if isinstance(seen, HintAnswer):
            return _stale(lease, seen.reason, now)
        leases.settle(swarm, seen.model, seen.at, now)
        lease.refresh_from_db()
        if lease.closed_at is not None:
            return LeaseReply(outcome="stale", reason=f"the lease is closed: {lease.close_reason}")
        if barred := seen.barred(lease.peer_id):
            return _stale(lease, barred, now)
        if step.plan_version is not None and step.plan_version != lease.plan_version:
            return LeaseReply(outcome="stale", reason="this accept belongs to an older offer; ask again")
        if step.current is not None and lease.origin is not None and step.current.to_span() != lease.origin:
            return _stale(lease, f"the server does not serve {lease.origin.in_words()} any more", now)
        version = plans.current_version(swarm, seen.model)
        others = seen.promises(but=lease.peer_id)
        code = ReasonCode(lease.reason_code)
        objection = still_useful(
            seen.planned, lease.peer_id, lease.span, lease.origin, others, reason_code=code, known=seen.known
        )
        if objection is not None:
            return _stale(lease, objection, now)
        # Also where the plan has moved on: this move is still right, and now belongs to the plan of today.
        if leases.accept(lease, now, version):
            return LeaseReply(outcome="ok", reason=lease.reason)
        return LeaseReply(outcome="stale", reason="the lease has run out or is closed")


def _look(swarm: str, prefix: str, now: datetime) -> Seen | HintAnswer:
    """What the monitor sees, or why nothing can be advised."""
    watched = watch_everyone(swarm)
    published = watched.published
    if published is None:
        return _stay(ReasonCode.BLIND, "the monitor has not seen this swarm yet", RETRY_SOON_S)
    if published.stale:
        return _stay(ReasonCode.BLIND, "the monitor cannot see the swarm at the moment; it advises nothing until it does")
    model = published.snapshot.model(prefix)
    if model is None:
        return _stay(ReasonCode.UNKNOWN_MODEL, f"the monitor has not seen {prefix} in this swarm yet", RETRY_SOON_S)
    at = datetime.fromtimestamp(published.snapshot.at, UTC)
    known = circumstances(swarm, model, published, now)
    return Seen(swarm, model, cautious(model, published), at, now, known, watched.rulings.quarantined)


def _take_back(seen: Seen) -> None:
    """What was promised to a server before it was put into quarantine is free for others."""
    if seen.quarantined:
        for lease in Lease.objects.of_model(seen.swarm, seen.model.prefix).open().filter(peer_id__in=seen.quarantined):
            leases.close(lease, Phase.STALE, QUARANTINED_SINCE, seen.now)


def _fresh(seen: Seen, request: HintRequest, follower: Follower, asked_from: str) -> HintAnswer:
    promises = seen.promises(but=request.peer)
    advice = _advise(seen, request, promises)
    if advice.placement is None:
        return _stay(advice.reason_code, advice.reason)
    serving = request.current.to_span() if request.current else None
    if serving is not None and follower.not_before is not None and follower.not_before > seen.now:
        until = follower.not_before.strftime("%H:%M:%S UTC")
        return _stay(ReasonCode.ASKED_NOT_TO, f"not asked before {until}: it declined ({follower.not_because})")
    if asked_from and Lease.objects.open().filter(asked_from=asked_from).count() >= OPEN_LEASES_OF_AN_ADDRESS:
        return _move(advice, f"{OPEN_LEASES_OF_AN_ADDRESS} leases are open from this address; wait for one of them")
    filled = _filled(seen.model, request.peer, promises, advice)
    # The planner says what a move wins where it has figures for it.
    terms = leases.Terms(getattr(advice.placement, "gain", None), request.est_load_s, asked_from)
    lease = leases.offer(seen.swarm, request.model, request.peer, advice.placement, filled, serving, seen.now, terms)
    if lease is None:
        return _stay(ReasonCode.OTHER_SERVER_MOVES, "another server was given these blocks a moment ago", RETRY_SOON_S)
    lease.plan_version = plans.current_version(seen.swarm, seen.model)
    lease.inputs = explain.inputs(seen.model, seen.at, request, promises, advice.placement.span)
    lease.save(update_fields=["plan_version", "inputs"])
    return _standing(lease, request, seen.now)


def _advise(seen: Seen, request: HintRequest, promises: Iterable[Promise]) -> Advice:
    serving = request.current.to_span() if request.current else None
    return advise(
        seen.planned,
        request.peer,
        request.num_blocks_max if serving is None else request.num_blocks,
        serving=serving,
        promises=promises,
        movable=followers.movable(seen.swarm, request.model, seen.now) - set(seen.quarantined),
        known=seen.known,
        pace=_pace(seen, request),
    )


def _pace(seen: Seen, request: HintRequest) -> Pace | None:
    """What the server says of its own speed, held to what its own rate or a usual server's is believed to be: nobody gets
    better blocks by a large word."""
    if request.forward_rps is None:
        return None
    rates = seen.known.rates
    most = max(rates.get(request.peer, 0.0), median(rates.values())) if rates else None
    line = [rate for rate in (request.network_rps, most) if rate is not None]
    return Pace(request.forward_rps, min(line) if line else None)


def _filled(model: Model, peer_id: str, promises: tuple[Promise, ...], advice: Advice) -> list[int]:
    """The blocks of the advised span that nobody else serves or has promised."""
    assert advice.placement is not None
    holes = {block for hole in find_holes(without(model, peer_id), promises) for block in hole}
    return [block for block in advice.placement.span if block in holes]


def _one_at_a_time(swarm: str, prefix: str) -> None:
    """Held until the transaction ends. `hashtextextended` makes the lock's number out of the names."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lease {swarm} {prefix}"])


def _standing(lease: Lease, request: HintRequest, now: datetime) -> HintAnswer:
    """The answer while a lease is open. A server that serves nothing gets it again: it was restarted while it loaded."""
    if lease.phase == Phase.ACCEPTED:
        leases.renew(lease, now)
        if request.current is not None:
            return _stay(ReasonCode.LEASE_OPEN, f"its move to {lease.span.in_words()} is under way: {lease.reason}")
    document = leases.to_document(lease, now)
    span = SpanDocument(start=lease.start, end=lease.end)
    code = ReasonCode(lease.reason_code)
    return HintAnswer(
        advice="move", reason_code=code, reason=lease.reason, retry_after_s=RETRY_AFTER_S, lease=document, span=span
    )


def _move(advice: Advice, why_no_lease: str) -> HintAnswer:
    assert advice.placement is not None
    target: Span = advice.placement.span
    return HintAnswer(
        advice="move",
        reason_code=advice.reason_code,
        reason=advice.reason,
        retry_after_s=RETRY_AFTER_S,
        span=SpanDocument(start=target.start, end=target.end),
        no_lease_because=why_no_lease,
    )


def _stay(reason_code: ReasonCode, reason: str, retry_after_s: float = RETRY_AFTER_S) -> HintAnswer:
    return HintAnswer(advice="stay", reason_code=reason_code, reason=reason, retry_after_s=retry_after_s)


def _stale(lease: Lease, why: str, now: datetime) -> LeaseReply:
    leases.close(lease, Phase.STALE, why, now)
    return LeaseReply(outcome="stale", reason=why)
