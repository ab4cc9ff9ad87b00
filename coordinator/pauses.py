"""For how long a server that did not follow a hint is not asked again.

There are two pauses. One holds for every move: after an offer that lapsed, after a lease that was taken and not kept, and for
as long as the server asked for itself. The other holds only for moves that fill no hole: a server that had sessions open, or
had just moved, leaves its blocks for a hole at once. Both grow, and end when it follows a hint. The lengths are
`coordinator.lease_terms`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum

from django.db import transaction
from django.db.models import Q

from coordinator.lease_terms import CLOCKS_DIFFER_S, pause_after
from coordinator.models import Follower, Lease
from swarm.wire.hints import DeclineReason, Urgency, decline_reason

DECLINES_OF_AN_ARRIVAL = 3
"""So many in a row an arriving server may decline before it waits like others: each is a lease that is kept for its page."""

PASSING = (DeclineReason.BUSY_SESSIONS, DeclineReason.TOO_SOON)
"""Reasons that say: not for so little. Given for a hole they count like any other, or the same server would be asked again."""


def note_decline(lease: Lease, reason: str, not_again: timedelta, now: datetime) -> None:
    with transaction.atomic():
        follower = _of(lease)
        if follower is None:
            return
        words = f"it declined ({reason})"
        # An arriving server has no sessions, and is asked again as soon as it asks.
        if lease.origin is not None and lease.urgency != Urgency.HOLE and decline_reason(reason) in PASSING:
            follower.elective_declines += 1
            follower.elective_not_before = now + pause_after(follower.elective_declines)
            follower.elective_not_because = words
            pause = not_again
        else:
            follower.declines += 1
            pause = max(not_again, pause_after(follower.declines))
        if pause:
            follower.not_before, follower.not_because = now + pause, words
        follower.paused_at = now
        follower.save()


def note_lapse(lease: Lease, now: datetime) -> None:
    """An offer that was not answered, or a lease that was taken and not kept: it is the next server's turn."""
    with transaction.atomic():
        follower = _of(lease)
        if follower is None:
            return
        follower.declines += 1
        follower.lapses += 1
        follower.not_before, follower.paused_at = now + pause_after(follower.declines), now
        follower.not_because = "it let an offer lapse" if lease.accepted_at is None else "it took a lease and did not keep it"
        follower.save()


def note_followed(lease: Lease) -> None:
    counted = Follower.objects.filter(Q(declines__gt=0) | Q(elective_declines__gt=0), swarm=lease.swarm, peer_id=lease.peer_id)
    counted.update(declines=0, lapses=0, elective_declines=0)


class Hindrance(Enum):
    """What keeps a server that serves from being asked to move; the last two only where that would fill no hole."""

    PAUSE = "pause"
    SESSIONS = "sessions"
    PAUSE_FOR_LESS = "pause for less"


def hindrance(follower: Follower, fills_hole: bool, now: datetime) -> Hindrance | None:
    """The rule. The server itself (`why_not_asked`) and anyone (`coordinator.unasked`) are told it in other words;
    `coordinator.followers.movable` is the same as a query."""
    if _holds(follower, follower.not_before, now):
        return Hindrance.PAUSE
    if fills_hole:
        return None
    if follower.sessions:
        return Hindrance.SESSIONS
    return Hindrance.PAUSE_FOR_LESS if _holds(follower, follower.elective_not_before, now) else None


def why_not_asked(follower: Follower, fills_hole: bool, now: datetime) -> str | None:
    """Why a server that serves is not asked to move now, as it is told itself; None where it is asked."""
    match hindrance(follower, fills_hole, now):
        case Hindrance.PAUSE:
            return f"not asked before {_clock(follower.not_before)}: {follower.not_because}"
        case Hindrance.SESSIONS:
            # No number: the server logs each new sentence, and sessions come and go.
            return "sessions are open here, and the move would fill no hole"
        case Hindrance.PAUSE_FOR_LESS:
            return f"not asked before {_clock(follower.elective_not_before)} but for a hole: {follower.elective_not_because}"
    return None


def why_no_promise(follower: Follower, now: datetime) -> str | None:
    """Why an arriving server is only told where to go: blocks that it promised lately were kept from others for nothing, or it
    declines whatever it is given."""
    unkept = follower.lapses > 0 or follower.declines >= DECLINES_OF_AN_ARRIVAL
    if unkept and _holds(follower, follower.not_before, now):
        return f"no lease before {_clock(follower.not_before)}: {follower.not_because}"
    return None


def ends_in_s(follower: Follower, now: datetime) -> float:
    return max(0.0, (follower.not_before - now).total_seconds()) if follower.not_before else 0.0


def _of(lease: Lease) -> Follower | None:
    return Follower.objects.select_for_update().filter(swarm=lease.swarm, peer_id=lease.peer_id).first()


def _holds(follower: Follower, until: datetime | None, now: datetime) -> bool:
    """Not a pause that was noted before the clock was set back: it would last until the clock has caught up."""
    noted_at = follower.paused_at
    return until is not None and until > now and (noted_at is None or noted_at - now <= timedelta(seconds=CLOCKS_DIFFER_S))


def _clock(time: datetime | None) -> str:
    return time.strftime("%H:%M:%S UTC") if time else ""
