"""Latest snapshot + open leases -> planner -> a lease, or "stay", always with a reason.

The coordinator advises only while it sees: with a stale snapshot, or none, every answer is to stay. One question at a time is
answered for a model (an advisory lock in Postgres), so that each answer counts the promise made just before. A question about
several models holds the locks of all of them, taken in the order of their names, so that no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from django.db import connection, transaction

from coordinator import explain, fleet, followers, leases, pauses, plans, seeing, signs, unasked
from coordinator.answering import RETRY_SOON_S, leased, move, stay
from coordinator.deciding import Going, decide
from coordinator.models import Follower, Lease, Phase
from coordinator.seeing import Seen
from coordinator.tallies import STAY, UNKNOWN, tally
from swarm.placement import Advice, Placement, Promise, find_holes, still_useful, without
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, LeaseStep, ReasonCode

QUARANTINED_SINCE = "this server has been quarantined"

RETRY_BARRED_S = 300.0
"""A quarantine lasts for hours; asking twice a minute helps nobody."""

LOCK_WAIT_S = 2
"""With the wait for a turn (`coordinator.turns`) less than the five seconds after which a server gives up."""

OPEN_LEASES_OF_AN_ADDRESS = 32
"""A site with more servers that all load at once has the rest wait a little; a crowd of made-up peers holds no more."""


def answer(swarm: str, request: HintRequest, now: datetime, asked_from: str = "") -> HintAnswer:
    """What `request.peer`, which has proved to be it, should do. Records the heartbeat; an offer is in Postgres before it is
    answered. `asked_from` is a digest of the asker's address."""
    seeing.prepare(swarm)
    with transaction.atomic():
        _one_at_a_time(swarm, request.offered)
        seen = _looked_at(swarm, request, now)
        if isinstance(seen, HintAnswer):
            # Anybody may ask about any name: those that the monitor does not know are counted together.
            known = request.model if seeing.is_known(swarm, request.model) else UNKNOWN
            tally(swarm, known, f"{STAY}-{seen.reason_code}", now)
            return seen
        followers.hold(swarm, request.peer, seen)
        follower = followers.note_heartbeat(swarm, request, now)
        signs.note_sessions(swarm, request.model, request.peer, request.sessions_active, now)
        for one in seen.values():
            leases.settle(swarm, one.model, one.at, now)
            _take_back(one)
        held = _held(swarm, request, now)
        follower.refresh_from_db()
        if barred := seen[request.model].barred(request.peer):
            given = stay(ReasonCode.QUARANTINED, barred, RETRY_BARRED_S)
        else:
            given = _standing(held, request, now) if held else _fresh(seen, request, follower, asked_from)
        if given.lease is None:
            tally(swarm, request.model, f"{STAY}-{given.reason_code}", now)
        return given


def look(swarm: str, request: HintRequest, now: datetime, why_no_lease: str) -> HintAnswer:
    """The same advice for someone who has not proved to be that peer: nothing is promised, nothing recorded."""
    seen = _looked_at(swarm, request, now)
    if isinstance(seen, HintAnswer):
        return seen.model_copy(update={"no_lease_because": why_no_lease})
    if barred := seen[request.model].barred(request.peer):
        return stay(ReasonCode.QUARANTINED, barred, RETRY_BARRED_S)
    going = decide(seen, request)
    if isinstance(going, Advice):
        return stay(going.reason_code, going.reason).model_copy(update={"no_lease_because": why_no_lease})
    return move(going.seen.model.prefix, going.placement, why_no_lease)


def accept(swarm: str, lease: Lease, step: LeaseStep, now: datetime) -> LeaseReply:
    """Before the server unloads anything: does the swarm still want this move?"""
    models = [lease.prefix, *([lease.origin_prefix] if lease.is_transfer else [])]
    seeing.prepare(swarm)
    with transaction.atomic():
        _one_at_a_time(swarm, models)
        followers.hold(swarm, lease.peer_id, models)
        looked = seeing.look(swarm, models, now)
        seen: dict[str, Seen] = {}
        for prefix, one in looked.items():
            if isinstance(one, HintAnswer):
                return _stale(lease, one.reason, now)
            seen[prefix] = one
            leases.settle(swarm, one.model, one.at, now)
        lease.refresh_from_db()
        if lease.closed_at is not None:
            return LeaseReply(outcome="stale", reason=f"the lease is closed: {lease.close_reason}")
        target = seen[lease.prefix]
        if barred := target.barred(lease.peer_id):
            return _stale(lease, barred, now)
        if step.plan_version is not None and step.plan_version != lease.plan_version:
            return LeaseReply(outcome="stale", reason="this accept belongs to an older offer; ask again")
        if step.current is not None and lease.origin is not None and step.current.to_span() != lease.origin:
            return _given_back(lease, f"the server does not serve {lease.origin.in_words()} any more", now)
        version = plans.current_version(swarm, target.model)
        objection = _objection(seen, lease)
        if objection is not None:
            return _stale(lease, objection, now)
        # Also where the plan has moved on: this move is still right, and now belongs to the plan of today.
        if leases.accept(lease, now, version):
            return LeaseReply(outcome="ok", reason=lease.reason)
        return LeaseReply(outcome="stale", reason="the lease has run out or is closed")


def _objection(seen: Mapping[str, Seen], lease: Lease) -> str | None:
    target = seen[lease.prefix]
    if lease.is_transfer:
        return fleet.why_not_any_more(seen[lease.origin_prefix], target, lease)
    return still_useful(
        target.planned(but=lease.peer_id),
        lease.peer_id,
        lease.span,
        lease.origin,
        target.promises(but=lease.peer_id),
        reason_code=ReasonCode(lease.reason_code),
        known=target.known,
    )


def _looked_at(swarm: str, request: HintRequest, now: datetime) -> dict[str, Seen] | HintAnswer:
    """All that the server offers and the monitor sees; or why nothing can be advised.

    Where the monitor has not seen one of them, an arriving server decides on its own view of the DHT: nobody else may serve
    that model, and nobody here knows how large it is.
    """
    looked = seeing.look(swarm, request.offered, now)
    told = [one for one in looked.values() if isinstance(one, HintAnswer)]
    if isinstance(first := looked[request.model], HintAnswer):
        return first
    if told and request.current is None:
        return told[0]
    return {prefix: one for prefix, one in looked.items() if not isinstance(one, HintAnswer)}


def _held(swarm: str, request: HintRequest, now: datetime) -> Lease | None:
    """The open lease of the asking peer. One for a model that it does not offer any more, or for more blocks than fit it by
    now, is its own to give back."""
    held = Lease.objects.filter(swarm=swarm, peer_id=request.peer).open().first()
    if held is not None and (fits := _fitting(request, held.prefix)) < len(held.span):
        why = f"only {fits} blocks fit the server by now" if fits else f"the server does not offer {held.prefix} any more"
        _given_back(held, why, now)
        return None
    return None if held is not None and leases.lapse(held, now) else held


def _fitting(request: HintRequest, prefix: str) -> int:
    """As many blocks as it serves fit a server, whatever it says: with these it is counted on, and asked."""
    most = request.offered.get(prefix, 0)
    return max(most, len(request.current.to_span())) if most and request.current is not None else most


def _take_back(seen: Seen) -> None:
    """What was promised to a server before it was put into quarantine is free for others."""
    if seen.quarantined:
        for lease in Lease.objects.of_model(seen.swarm, seen.model.prefix).open().filter(peer_id__in=seen.quarantined):
            leases.close(lease, Phase.STALE, QUARANTINED_SINCE, seen.now)


def _fresh(seen: Mapping[str, Seen], request: HintRequest, follower: Follower, asked_from: str) -> HintAnswer:
    going = decide(seen, request)
    if isinstance(going, Advice):
        return stay(going.reason_code, going.reason)
    now = going.seen.now
    serving = request.current.to_span() if request.current else None
    if serving is not None and (why := pauses.why_not_asked(follower, going.fills_hole, now)) is not None:
        return stay(ReasonCode.ASKED_NOT_TO, why)
    prefix = going.seen.model.prefix
    if serving is None and (why := pauses.why_no_promise(follower, now)) is not None:
        return move(prefix, going.placement, why, pauses.ends_in_s(follower, now))
    # Not where one serves: the crawl has seen that it is no made-up peer, and others stay because it is the one to move.
    if serving is None and asked_from and _open_from(asked_from, now) >= OPEN_LEASES_OF_AN_ADDRESS:
        why = f"{OPEN_LEASES_OF_AN_ADDRESS} leases are open from this address; wait for one of them"
        return move(prefix, going.placement, why, RETRY_SOON_S)
    lease = _offer(going, request, asked_from)
    if lease is None:
        return stay(ReasonCode.OTHER_SERVER_MOVES, "another server was given these blocks a moment ago", RETRY_SOON_S)
    return _standing(lease, request, now)


def _open_from(asked_from: str, now: datetime) -> int:
    return Lease.objects.open().filter(asked_from=asked_from, expires_at__gt=now).count()


def _offer(going: Going, request: HintRequest, asked_from: str) -> Lease | None:
    seen, placement = going.seen, going.placement
    promises = seen.promises(but=request.peer)
    filled = _filled(seen.planned(but=request.peer), request.peer, promises, placement)
    serving = request.current.to_span() if request.current else None
    leaving = going.leaving.model.prefix if going.leaving else ""
    # The planner says what a move wins where it has figures for it.
    slow = {promise.peer_id for promise in promises if promise.slow}
    turn = leases.next_turn(seen.swarm, seen.model.prefix, filled, slow)
    terms = leases.Terms(placement.gain, _cost_s(going, request), asked_from, leaving, turn)
    if turn:
        placement = replace(placement, reason=f"{placement.reason}, and who was asked before takes long")
    lease = leases.offer(seen.swarm, seen.model.prefix, request.peer, placement, filled, serving, seen.now, terms)
    if lease is not None:
        lease.plan_version = plans.current_version(seen.swarm, seen.model)
        basis = explain.Basis(seen.planned(but=request.peer), seen.at, promises, seen.known)
        asked = unasked.Asked(seen.swarm, seen.model.prefix, going.fills_hole, seen.now, seen.shown)
        why_not = partial(unasked.why_not, asked, known=seen.known)
        lease.inputs = explain.inputs(basis, request, placement, why_not)
        if going.leaving is not None:
            lease.inputs["leaves"] = explain.leaves(going.leaving.planned(but=request.peer), request)
        if going.ranking:
            lease.inputs["models"] = explain.models(going.ranking)
        lease.save(update_fields=["plan_version", "inputs"])
    return lease


def _cost_s(going: Going, request: HintRequest) -> float | None:
    """What a server says of loading, it says of `num_blocks` of the model that it asks about."""
    if request.est_load_s is None or going.seen.model.prefix != request.model:
        return None
    return request.est_load_s * len(going.placement.span) / request.num_blocks


def _filled(model: Model, peer_id: str, promises: tuple[Promise, ...], placement: Placement) -> list[int]:
    """The blocks of the advised span that nobody else serves or has promised."""
    holes = {block for hole in find_holes(without(model, peer_id), promises) for block in hole}
    return [block for block in placement.span if block in holes]


def _one_at_a_time(swarm: str, prefixes: Iterable[str]) -> None:
    """Held until the transaction ends. `hashtextextended` makes a lock's number out of the names. Who waits for too long, for
    this lock or for a row, fails with OperationalError, and is told to come back (`coordinator.problems`)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_WAIT_S:g}s"])
        for prefix in sorted(prefixes):
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lease {swarm} {prefix}"])


def _standing(lease: Lease, request: HintRequest, now: datetime) -> HintAnswer:
    """The answer while a lease is open. A server that serves nothing gets it again: it was restarted while it loaded. So does
    one that still serves what it was to leave, and has reported nothing: the answer to its accept was lost. As long as it is
    there it gets no more time by asking, since it is not on its way."""
    if lease.phase == Phase.ACCEPTED:
        stays = _stays(lease, request)
        if not stays:
            leases.renew(lease, now)
        if request.current is not None and not (stays and lease.renewals == 0):
            where = f"{lease.span.in_words()} of {lease.prefix}" if lease.is_transfer else lease.span.in_words()
            return stay(ReasonCode.LEASE_OPEN, f"its move to {where} is under way: {lease.reason}")
    return leased(lease, now)


def _stays(lease: Lease, request: HintRequest) -> bool:
    """Whether the server says that it serves what it was to leave."""
    serving = request.current.to_span() if request.current else None
    return serving is not None and (serving, request.model) == (lease.origin, lease.from_model)


def _given_back(lease: Lease, why: str, now: datetime) -> LeaseReply:
    """By what the server says of itself: it counts as a decline, or it would be offered the same again, and keep it from others
    for as long as it goes on so."""
    if leases.close(lease, Phase.STALE, why, now):
        pauses.note_decline(lease, why, timedelta(0), now)
    return LeaseReply(outcome="stale", reason=why)


def _stale(lease: Lease, why: str, now: datetime) -> LeaseReply:
    leases.close(lease, Phase.STALE, why, now)
    return LeaseReply(outcome="stale", reason=why)
