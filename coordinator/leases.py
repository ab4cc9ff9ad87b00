"""The life of a lease: offered, accepted, done; or declined, stale, expired. Each step is one conditional update, so that of
two processes that try the same step one succeeds and the other is told so.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F

from coordinator.models import OPEN, Lease, Phase
from swarm.placement import Placement, Promise
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import LeaseDocument, ReasonCode, Urgency
from swarm.wire.spans import Span

OFFER_LIFE = timedelta(seconds=90)
"""An offer that is not accepted by then goes back: three polls of a server that asks every 30 s."""

LOADING_LIFE = timedelta(seconds=180)
"""From an accept, and from each report of progress, to the next report. A server that says nothing for so long has died."""


def offer(
    swarm: str,
    prefix: str,
    peer_id: str,
    placement: Placement,
    filled: Iterable[int],
    origin: Span | None,
    now: datetime,
) -> Lease | None:
    """The new lease, or None where another process has just promised one of the same blocks, or this peer, away."""
    blocks = sorted(filled)
    try:
        with transaction.atomic():
            return Lease.objects.create(
                swarm=swarm,
                prefix=prefix,
                peer_id=peer_id,
                start=placement.span.start,
                end=placement.span.end,
                origin_start=origin.start if origin else None,
                origin_end=origin.end if origin else None,
                claimed=(blocks[0], blocks[-1] + 1) if blocks else None,
                urgency=Urgency.HOLE if blocks else Urgency.ARRIVAL,
                reason_code=placement.reason_code,
                reason=placement.reason,
                created_at=now,
                expires_at=now + OFFER_LIFE,
            )
    except IntegrityError:
        return None


def accept(lease: Lease, now: datetime) -> bool:
    """Accepting twice is fine: the first answer may have been lost on its way."""
    return _step(lease, OPEN, now, phase=Phase.ACCEPTED, accepted_at=now, expires_at=now + LOADING_LIFE)


def report_progress(lease: Lease, progress: float, now: datetime) -> bool:
    return _step(lease, (Phase.ACCEPTED,), now, progress=progress, expires_at=now + LOADING_LIFE)


def close(lease: Lease, phase: Phase, reason: str, now: datetime) -> bool:
    closed = Lease.objects.filter(pk=lease.pk, phase__in=OPEN).update(
        phase=phase, closed_at=now, close_reason=reason, progress=1.0 if phase is Phase.DONE else F("progress")
    )
    return closed == 1


def settle(swarm: str, model: Model, seen_at: datetime, now: datetime) -> bool:
    """Closes what has run its course: leases seen online in a snapshot, and those that are overdue. Whether any was closed."""
    changed = False
    online = {server.peer_id: server.span for server in model.servers if server.state is PeerState.ONLINE}
    for lease in Lease.objects.of_model(swarm, model.prefix).open():
        seen = online.get(lease.peer_id)
        # Only a snapshot taken after the lease says anything about it.
        if seen is not None and seen.covers(lease.span) and seen_at > lease.created_at:
            changed |= close(lease, Phase.DONE, "seen online", now)
        elif lease.expires_at <= now:
            changed |= close(lease, Phase.EXPIRED, "no sign of the server before the lease ran out", now)
    return changed


def open_promises(swarm: str, prefix: str) -> tuple[Promise, ...]:
    return tuple(lease.promise for lease in Lease.objects.of_model(swarm, prefix).open())


def to_document(lease: Lease, now: datetime) -> LeaseDocument:
    return LeaseDocument(
        id=str(lease.pk),
        model=lease.prefix,
        start=lease.start,
        end=lease.end,
        urgency=Urgency(lease.urgency),
        reason_code=ReasonCode(lease.reason_code),
        reason=lease.reason,
        expires_in_s=max(0.0, (lease.expires_at - now).total_seconds()),
    )


def _step(lease: Lease, phases: tuple[Phase, ...], now: datetime, **changes: object) -> bool:
    return Lease.objects.filter(pk=lease.pk, phase__in=phases, expires_at__gt=now).update(**changes) == 1
