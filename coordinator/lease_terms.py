"""How long a lease stands, and how it ends: the rules, without a database. Pure; times in Unix seconds.

`coordinator.leases` keeps leases in Postgres by these rules, the simulator (`benchmarks/sim/arms.py`) in memory by the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from swarm.snapshot import LOADING_LIMIT_S
from swarm.wire.spans import Span

OFFER_LIFE = timedelta(seconds=90)
"""An offer that is not accepted by then goes back: three polls of a server that asks every 30 s."""

LOADING_LIFE = timedelta(seconds=180)
"""From an accept, and from each report or question, to the next one. A server that says nothing for so long has died."""

LEAST_LOADING_LIMIT_S, MOST_LOADING_LIMIT_S = 1_800.0, LOADING_LIMIT_S
"""Renewals end here, whatever is reported: a block may not be held by a promise for good. Big spans on slow disks load for
half an hour; a server that says that it takes longer gets twice what it says, up to two hours."""

STALLED_AFTER_S = 600.0
"""So long without progress ends an accepted lease: bytes come every few seconds while anything is loaded. It leaves room for a
server that waits until another one on its machine has filled the cache folder that they share."""

CLOCKS_DIFFER_S = 60.0
"""Two coordinators' clocks. A lease dated further ahead is from before the clock was set back, and might block for ever."""


class End(StrEnum):
    DONE = "done"
    STALE = "stale"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Held:
    """One open lease. `origin` is None for an arrival."""

    peer_id: str
    span: Span
    origin: Span | None
    created_at: float
    expires_at: float
    accepted_at: float | None = None
    deadline_at: float | None = None
    progressed_at: float | None = None


def offered(peer_id: str, span: Span, origin: Span | None, now: float) -> Held:
    return Held(peer_id, span, origin, now, now + OFFER_LIFE.total_seconds())


def accepted(held: Held, now: float, cost_s: float | None = None) -> Held:
    """Accepting twice is fine: the first answer may have been lost on its way."""
    deadline_at = held.deadline_at if held.deadline_at is not None else now + loading_limit_s(cost_s)
    accepted_at = held.accepted_at if held.accepted_at is not None else now
    progressed_at = held.progressed_at if held.progressed_at is not None else now
    expires_at = now + LOADING_LIFE.total_seconds()
    return replace(held, accepted_at=accepted_at, deadline_at=deadline_at, progressed_at=progressed_at, expires_at=expires_at)


def renewed(held: Held, now: float, *, progressed: bool = False) -> Held:
    """The server is still there and loading. Never beyond the deadline; what has run out is not renewed. `progressed` where
    it reports another share loaded than before."""
    if held.expires_at <= now or held.deadline_at is None:
        return held
    expires_at = min(now + LOADING_LIFE.total_seconds(), held.deadline_at)
    return replace(held, expires_at=expires_at, progressed_at=now if progressed else held.progressed_at)


def end_of(held: Held, seen: Span | None, seen_at: float, now: float) -> tuple[End, str] | None:
    """How the lease ends now, and why; None while it stands. `seen` is the span with which a snapshot of `seen_at` shows the
    server online, None where it does not."""
    if max(held.created_at, held.accepted_at or 0.0, held.progressed_at or 0.0) - now > CLOCKS_DIFFER_S:
        return End.STALE, "the coordinator's clock was set back"
    # Only a snapshot taken after the lease says anything about it.
    if seen is not None and seen_at > held.created_at:
        if seen.covers(held.span):
            return End.DONE, "seen online"
        # Not a server that is still where it was, nor one of whose blocks some could not be read.
        if not seen.overlaps(held.span) and (held.origin is None or not seen.overlaps(held.origin)):
            return End.STALE, f"seen online with {seen.in_words()} instead"
    if held.expires_at <= now:
        return End.EXPIRED, _why_expired(held)
    if held.progressed_at is not None and now - held.progressed_at >= STALLED_AFTER_S:
        return End.EXPIRED, f"no progress for {STALLED_AFTER_S / 60:.0f} minutes"
    return None


def loading_limit_s(cost_s: float | None) -> float:
    return min(MOST_LOADING_LIMIT_S, max(LEAST_LOADING_LIMIT_S, 2 * (cost_s or 0.0)))


def pause_after(times: int) -> timedelta:
    """After so many hints that a server did not follow: 1, 2, 4, 8 … minutes, up to four hours."""
    return timedelta(minutes=min(240, 2 ** min(times - 1, 8)))


def _why_expired(held: Held) -> str:
    if held.accepted_at is None:
        return "not accepted in time"
    if held.deadline_at is not None and held.expires_at >= held.deadline_at:
        return "not online by the deadline"
    return "no sign of the server before the lease ran out"
