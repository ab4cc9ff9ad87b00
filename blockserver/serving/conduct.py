"""Should this server follow a lease? Pure: its situation in, an objection or none out. Petals' servers move for throughput;
ours leave their blocks for a hole at once, and for anything else only when nobody is hurt by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.wire.hints import LeaseDocument, Urgency
from swarm.wire.spans import Span


@dataclass(frozen=True, slots=True)
class Situation:
    """`dwelt_s` is the time with the present blocks; `fetch_bytes` is what loading the leased ones would write to the disk."""

    serving: Span | None
    pinned: bool = False
    sessions_active: int = 0
    dwelt_s: float = 0.0
    min_dwell_s: float = 0.0
    num_blocks_max: int | None = None
    fetch_bytes: int = 0
    disk_free_bytes: int | None = None


def objection(lease: LeaseDocument, now: Situation) -> str | None:
    """Why the lease is declined: the reason's code, a colon, and the reason in words; None to follow it."""
    span = lease.to_span()
    if now.pinned:
        return f"pinned: the operator set this server to {now.serving.in_words() if now.serving else 'fixed blocks'}"
    if now.num_blocks_max is not None and len(span) > now.num_blocks_max:
        return f"memory: {len(span)} blocks are more than the {now.num_blocks_max} that fit here"
    if now.disk_free_bytes is not None and now.fetch_bytes > now.disk_free_bytes:
        return f"disk: {now.fetch_bytes / 1e9:.1f} GB to fetch, {now.disk_free_bytes / 1e9:.1f} GB free"
    if now.serving is None or lease.urgency is Urgency.HOLE:
        return None
    if now.dwelt_s < now.min_dwell_s:
        return f"too_soon: moved {now.dwelt_s:.0f} s ago, and a move that fills no hole waits for {now.min_dwell_s:.0f} s"
    if now.sessions_active:
        return f"busy_sessions: {now.sessions_active} sessions are open, and no hole waits"
    return None
