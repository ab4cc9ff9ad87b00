"""The forms that an answer to a question has: stay, move without a lease, the lease. Knows no rules."""

from __future__ import annotations

from datetime import datetime

from coordinator import leases
from coordinator.models import Lease
from swarm.placement import Placement
from swarm.wire.hints import HintAnswer, ReasonCode, SpanDocument

RETRY_AFTER_S = 30.0
RETRY_SOON_S = 5.0


def stay(reason_code: ReasonCode, reason: str, retry_after_s: float = RETRY_AFTER_S) -> HintAnswer:
    return HintAnswer(advice="stay", reason_code=reason_code, reason=reason, retry_after_s=retry_after_s)


def move(prefix: str, placement: Placement, why_no_lease: str) -> HintAnswer:
    """Where to go, for someone who gets no lease."""
    return HintAnswer(
        advice="move",
        reason_code=placement.reason_code,
        reason=placement.reason,
        retry_after_s=RETRY_AFTER_S,
        span=SpanDocument(start=placement.span.start, end=placement.span.end),
        model=prefix,
        no_lease_because=why_no_lease,
    )


def leased(lease: Lease, now: datetime) -> HintAnswer:
    return HintAnswer(
        advice="move",
        reason_code=ReasonCode(lease.reason_code),
        reason=lease.reason,
        retry_after_s=RETRY_AFTER_S,
        lease=leases.to_document(lease, now),
        span=SpanDocument(start=lease.start, end=lease.end),
        model=lease.prefix,
    )
