"""The life of a lease: offered, accepted, done; or declined, stale, expired. Each step is one conditional update, so that of
two processes that try the same step one succeeds and the other is told so. The terms are `coordinator.lease_terms`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median

from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import NumericRange
from django.db.models import Case, F, Value, When
from django.db.models.functions import Greatest, Least

from coordinator import pauses
from coordinator.lease_terms import (
    LOADING_LIFE,
    OFFER_LIFE,
    End,
    Held,
    end_of,
    later_deadline,
    loading_limit_s,
    promised,
    reloads,
)
from coordinator.models import OPEN, Lease, Phase
from coordinator.tallies import OFFERED, tally
from swarm.placement import Placement, Promise, urgency_of
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import LeaseDocument, ReasonCode, SpanDocument, Urgency
from swarm.wire.spans import Span

KEPT_FOR = timedelta(days=90)
LATELY, LAST_LOADS = timedelta(days=7), 21
"""What loads took here: of older ones servers and lines were others."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an offer says beside its span and reason. `asked_from` is a digest of the asker's address, `from_prefix` the model
    that the server leaves, where it is another one; `turn` counts those before it who take long (`next_turn`)."""

    gain: float | None = None
    cost_s: float | None = None
    asked_from: str = ""
    from_prefix: str = ""
    turn: int = 0


def offer(
    swarm: str,
    prefix: str,
    peer_id: str,
    placement: Placement,
    filled: Iterable[int],
    origin: Span | None,
    now: datetime,
    terms: Terms = Terms(),
) -> Lease | None:
    """The new lease, or None where another process has just promised one of the same blocks, or this peer, away."""
    blocks = sorted(filled)
    try:
        with transaction.atomic():
            lease = Lease.objects.create(
                swarm=swarm,
                prefix=prefix,
                peer_id=peer_id,
                start=placement.span.start,
                end=placement.span.end,
                origin_start=origin.start if origin else None,
                origin_end=origin.end if origin else None,
                origin_prefix=terms.from_prefix,
                claimed=_range(blocks) if blocks else None,
                turn=terms.turn,
                urgency=_urgency(blocks, origin, placement.reason_code),
                reason_code=placement.reason_code,
                reason=placement.reason,
                expected_gain=terms.gain,
                cost_s=terms.cost_s,
                asked_from=terms.asked_from,
                created_at=now,
                expires_at=now + OFFER_LIFE,
            )
    except IntegrityError:
        return None
    tally(swarm, prefix, OFFERED, now)
    return lease


def accept(lease: Lease, now: datetime, plan_version: int | None = None) -> bool:
    """Accepting twice is fine: the first answer may have been lost on its way. `plan_version` is the plan on which the offer
    has just been found to be still good; the offer must still belong to the plan that the caller has read."""
    deadline_at = lease.deadline_at or now + timedelta(seconds=loading_limit_s(lease.cost_s))
    changes: dict[str, object] = {
        "phase": Phase.ACCEPTED,
        "expires_at": min(now + LOADING_LIFE, deadline_at),
        "deadline_at": deadline_at,
        "progress": 0.0,
    }
    if lease.accepted_at is None:
        changes["accepted_at"] = now
    if lease.accepted_at is None or lease.progress > 0.0:
        changes["progressed_at"] = now
    if plan_version is not None:
        changes["plan_version"] = plan_version
    offered = Lease.objects.filter(pk=lease.pk, plan_version=lease.plan_version, phase__in=OPEN, expires_at__gt=now)
    return offered.update(**changes) == 1


def renew(lease: Lease, now: datetime, progress: float | None = None) -> bool:
    """The server is still there and loading. Never beyond the deadline, which moves on while it is on course."""
    deadline_at = Greatest(F("deadline_at"), Value(_later_deadline(lease, progress, now)))
    until = Least(Value(now + LOADING_LIFE), deadline_at)
    changes: dict[str, object] = {"expires_at": until, "deadline_at": deadline_at, "renewals": F("renewals") + 1}
    if progress is not None:
        moved_on = Case(When(progress__lt=progress, then=Value(now)), default=F("progressed_at"))
        changes |= {"progress": Greatest(F("progress"), Value(progress)), "progressed_at": moved_on}
    return Lease.objects.filter(pk=lease.pk, phase=Phase.ACCEPTED, expires_at__gt=now).update(**changes) == 1


def _later_deadline(lease: Lease, progress: float | None, now: datetime) -> datetime | None:
    """None, which `Greatest` passes over, for one that is not accepted as far as the caller has read."""
    if lease.accepted_at is None:
        return None
    return datetime.fromtimestamp(later_deadline(lease.accepted_at.timestamp(), progress or 0.0, now.timestamp()), UTC)


def decline(lease: Lease, reason: str, not_again: timedelta, now: datetime) -> bool:
    """No penalty: it is the next server's turn. Who declines again and again is asked half as often each time."""
    declined = close(lease, Phase.DECLINED, reason, now)
    if declined and lease.origin is None:
        # Anybody makes peers that arrive, and decline: of these no more is kept than the line in the list.
        lease.inputs = {}
        lease.save(update_fields=["inputs"])
    if declined:
        pauses.note_decline(lease, reason, not_again, now)
    return declined


def close(lease: Lease, phase: Phase, reason: str, now: datetime) -> bool:
    progress = 1.0 if phase is Phase.DONE else F("progress")
    still_open = Lease.objects.filter(pk=lease.pk, phase__in=OPEN)
    closed = still_open.update(phase=phase, closed_at=now, close_reason=reason, progress=progress, asked_from="")
    if closed:
        lease.refresh_from_db()
        tally(lease.swarm, lease.prefix, lease.outcome, now)
        if phase is Phase.DONE:
            pauses.note_followed(lease)
        elif phase is Phase.EXPIRED:
            pauses.note_lapse(lease, now)
    return closed == 1


def settle(swarm: str, model: Model, seen_at: datetime, now: datetime) -> bool:
    """Closes what has run its course: leases seen online in a snapshot, those whose server went elsewhere (the DHT is the
    truth, also after the coordinator was away for a while), and those that are overdue. Whether any was closed."""
    changed = False
    online = {server.peer_id: server.span for server in model.servers if server.state is PeerState.ONLINE}
    for lease in Lease.objects.of_model(swarm, model.prefix).open():
        end = end_of(_held(lease), online.get(lease.peer_id), seen_at.timestamp(), now.timestamp())
        if end is not None:
            changed |= close(lease, _PHASES[end[0]], end[1], now)
    return changed


def lapse(lease: Lease, now: datetime) -> bool:
    """Closes it where it has run out, also one of a model that nobody sees any more."""
    end = end_of(_held(lease), None, 0.0, now.timestamp())
    return end is not None and close(lease, _PHASES[end[0]], end[1], now)


def lapse_others(swarm: str, seen: Collection[str], now: datetime) -> None:
    """Closes what has run out of models that are not among those `seen`: nothing else ever looks at them."""
    for lease in Lease.objects.open().filter(swarm=swarm).exclude(prefix__in=seen):
        lapse(lease, now)


def _held(lease: Lease) -> Held:
    return Held(
        lease.peer_id,
        lease.span,
        # Blocks of another model say nothing about where it is seen in this one.
        None if lease.is_transfer else lease.origin,
        lease.created_at.timestamp(),
        lease.expires_at.timestamp(),
        lease.accepted_at.timestamp() if lease.accepted_at else None,
        lease.deadline_at.timestamp() if lease.deadline_at else None,
        lease.progressed_at.timestamp() if lease.progressed_at else None,
        lease.progress,
        lease.cost_s,
        lease.turn,
    )


_PHASES = {End.DONE: Phase.DONE, End.STALE: Phase.STALE, End.EXPIRED: Phase.EXPIRED}


def forget(now: datetime) -> None:
    Lease.objects.filter(closed_at__lt=now - KEPT_FOR).delete()


def open_promises(swarm: str, model: Model, now: datetime) -> tuple[Promise, ...]:
    return _promises(swarm, model, [_held(lease) for lease in Lease.objects.of_model(swarm, model.prefix).open()], now)


def _promises(swarm: str, model: Model, kept: list[Held], now: datetime) -> tuple[Promise, ...]:
    return promised(kept, model, now.timestamp(), usual_load_s(swarm, model.prefix, now)) if kept else ()


def usual_load_s(swarm: str, prefix: str, now: datetime) -> float:
    """The median of the last loads of this model that ended, from the accept to being seen online; 0 where there was none."""
    done = Lease.objects.of_model(swarm, prefix).filter(phase=Phase.DONE, accepted_at__isnull=False, closed_at__gt=now - LATELY)
    times = done.order_by("-created_at").values_list("accepted_at", "closed_at")[:LAST_LOADS]
    return median([(closed - accepted).total_seconds() for accepted, closed in times if accepted and closed] or [0.0])


def next_turn(swarm: str, prefix: str, blocks: Iterable[int], slow: Collection[str]) -> int:
    """Of a lease for these blocks: after those of the servers that are on their way to them and take long. Not after others,
    so that two processes which see the same ones come to the same turn, and one of them is refused."""
    wanted = sorted(blocks)
    if not wanted or not slow:
        return 0
    before = (
        Lease.objects.of_model(swarm, prefix).open().filter(peer_id__in=slow, claimed__overlap=NumericRange(*_range(wanted)))
    )
    return max(before.values_list("turn", flat=True), default=-1) + 1


def reloading(swarm: str, prefix: str, now: datetime) -> int:
    """Servers that this model misses meanwhile: those that go elsewhere within it, or to another one."""
    going = Lease.objects.touching(swarm, prefix).open().filter(origin_start__isnull=False)
    leaves = (lease for lease in going if not (lease.is_transfer and lease.prefix == prefix))
    return sum(reloads(_held(lease), now.timestamp()) for lease in leaves)


@dataclass(frozen=True, slots=True)
class Prospects:
    """What open leases will bring a model: `promises` of servers that come or move, and whom it loses to which other model."""

    promises: tuple[Promise, ...] = ()
    leaving: Mapping[str, str] = field(default_factory=dict)


def prospects_of(swarm: str, models: Iterable[Model], now: datetime) -> dict[str, Prospects]:
    """By prefix. One query, however many; and one for each model that somebody is on its way to."""
    found = {model.prefix: model for model in models}
    coming: dict[str, list[Held]] = {prefix: [] for prefix in found}
    going: dict[str, dict[str, str]] = {prefix: {} for prefix in found}
    for lease in Lease.objects.touching(swarm, *found).open():
        if lease.prefix in coming:
            coming[lease.prefix].append(_held(lease))
        if lease.is_transfer and lease.origin_prefix in going:
            going[lease.origin_prefix][lease.peer_id] = lease.prefix
    return {prefix: Prospects(_promises(swarm, found[prefix], coming[prefix], now), going[prefix]) for prefix in found}


def leaving(swarm: str, prefix: str) -> dict[str, str]:
    """Servers that go from this model to another one, with its prefix, by open leases."""
    return dict(Lease.objects.leaving(swarm, prefix).open().values_list("peer_id", "prefix"))


def to_document(lease: Lease, now: datetime) -> LeaseDocument:
    origin = lease.origin
    return LeaseDocument(
        id=str(lease.pk),
        model=lease.prefix,
        start=lease.start,
        end=lease.end,
        urgency=Urgency(lease.urgency),
        reason_code=ReasonCode(lease.reason_code),
        reason=lease.reason,
        expires_in_s=max(0.0, (lease.expires_at - now).total_seconds()),
        plan_version=lease.plan_version,
        if_unchanged=SpanDocument(start=origin.start, end=origin.end) if origin else None,
        from_model=lease.from_model,
        expected_gain=lease.expected_gain,
        cost_s=lease.cost_s,
        deadline_s=loading_limit_s(lease.cost_s),
    )


def _range(blocks: list[int]) -> tuple[int, int]:
    return blocks[0], blocks[-1] + 1


def _urgency(filled: list[int], origin: Span | None, code: ReasonCode) -> Urgency:
    """Holes first, whoever fills them."""
    if filled:
        return Urgency.HOLE
    return Urgency.ARRIVAL if origin is None else urgency_of(code)
