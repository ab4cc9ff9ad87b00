"""How long a lease stands, for how long it keeps others away, and how it ends: the rules, without a database. Pure; times in
Unix seconds.

To stand and to keep others away are two things. A first download takes hours, and what it has cost should not be lost: so a
lease stands while its server gets on. But progress is only said, and a block without a server cannot wait for hours: so a
promise is counted on for a while (`promised`), and then the next server is asked as well. Whoever comes first ends the outage.

`coordinator.leases` keeps leases in Postgres by these rules, the simulator (`benchmarks/sim/arms.py`) in memory by the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from swarm.placement import Promise
from swarm.placement.holders import dark_blocks, planned
from swarm.snapshot import LOADING_LIMIT_S, Model
from swarm.wire.spans import Span

OFFER_LIFE = timedelta(seconds=90)
"""An offer that is not accepted by then goes back: three polls of a server that asks every 30 s."""

LOADING_LIFE = timedelta(seconds=180)
"""From an accept, and from each report or question, to the next one. A server that says nothing for so long has died."""

LEAST_LOADING_LIMIT_S, MOST_LOADING_LIMIT_S = 1_800.0, LOADING_LIMIT_S
"""For so long a lease stands with any progress at all. Big spans on slow disks load for half an hour; a server that says
that it takes longer gets twice what it says, up to two hours. From then on it must be on course."""

LONGEST_LOAD_S = 43_200.0
"""On course is who will be done within this time at the pace so far; no lease stands longer. 40 blocks of a 70B model
are some 70 GB: half a day at 13 Mbit/s."""

PATIENCE_S, MOST_PATIENCE_S = 600.0, 5_400.0
"""For so long a promise keeps others from blocks that no server has online; a load from the disk takes two to five minutes.
Where loads have taken longer lately, half as long again as those: a second server would come no sooner than the first.
Each further server on its way to them has three times as long as the one before it, up to an hour and a half: where all lines
are slow, the first one is done before many have left their blocks."""

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
    """One open lease. `origin` is None for an arrival; `progress` is the largest share that was reported; `turn` counts the
    servers that were on their way to the same blocks before, and took long."""

    peer_id: str
    span: Span
    origin: Span | None
    created_at: float
    expires_at: float
    accepted_at: float | None = None
    deadline_at: float | None = None
    progressed_at: float | None = None
    progress: float = 0.0
    cost_s: float | None = None
    turn: int = 0


def offered(peer_id: str, span: Span, origin: Span | None, now: float, turn: int = 0) -> Held:
    return Held(peer_id, span, origin, now, now + OFFER_LIFE.total_seconds(), turn=turn)


def accepted(held: Held, now: float, cost_s: float | None = None) -> Held:
    """Accepting twice is fine: the first answer may have been lost on its way, or the server begins anew after a restart. It
    gives no more time, nor is it a sign of progress where there was none."""
    deadline_at = now + loading_limit_s(cost_s) if held.deadline_at is None else held.deadline_at
    return replace(
        held,
        accepted_at=now if held.accepted_at is None else held.accepted_at,
        deadline_at=deadline_at,
        cost_s=cost_s if held.accepted_at is None else held.cost_s,
        progressed_at=now if held.accepted_at is None or held.progress > 0.0 else held.progressed_at,
        progress=0.0,
        expires_at=min(now + LOADING_LIFE.total_seconds(), deadline_at),
    )


def renewed(held: Held, now: float, progress: float | None = None) -> Held:
    """The server is still there and loading; `progress` is the share that it reports, None where it only asked. Never beyond
    the deadline, which moves on while it is on course; what has run out is not renewed."""
    if held.expires_at <= now or held.deadline_at is None or held.accepted_at is None:
        return held
    deadline_at = max(held.deadline_at, later_deadline(held.accepted_at, progress or 0.0, now))
    moved_on = progress is not None and progress > held.progress
    return replace(
        held,
        expires_at=min(now + LOADING_LIFE.total_seconds(), deadline_at),
        deadline_at=deadline_at,
        progressed_at=now if moved_on else held.progressed_at,
        progress=max(held.progress, progress or 0.0),
    )


def later_deadline(accepted_at: float, progress: float, now: float) -> float:
    """When a lease ends at the latest by what is reported now: half an hour on for one that is on course. In the past for one
    that is not."""
    on_course = progress > 0.0 and now - accepted_at <= progress * LONGEST_LOAD_S
    return min(now + LEAST_LOADING_LIMIT_S, accepted_at + LONGEST_LOAD_S) if on_course else accepted_at


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


def patience_s(turn: int, usual_s: float = 0.0) -> float:
    """`usual_s` is what loads took that were seen to end, not what anybody says."""
    return min(MOST_PATIENCE_S, max(PATIENCE_S, 1.5 * usual_s) * 3 ** min(turn, 8))


def is_slow(held: Held, dark: bool, now: float, usual_s: float = 0.0) -> bool:
    """Whether nobody counts on it any more; `dark` where it is to bring blocks that no server has online. Elsewhere as for
    one that only says that it loads."""
    return _for_s(held, now) >= (patience_s(held.turn, usual_s) if dark else LOADING_LIMIT_S)


def reloads(held: Held, now: float) -> bool:
    """Whether it is one of those that may reload at once: no longer than loading was to take, or moves of others would wait
    for hours."""
    return _for_s(held, now) < loading_limit_s(held.cost_s)


def _for_s(held: Held, now: float) -> float:
    return now - (held.created_at if held.accepted_at is None else held.accepted_at)


def promised(leases: Iterable[Held], model: Model, now: float, usual_s: float = 0.0) -> tuple[Promise, ...]:
    """What the planner is told of the open leases of a model: whose blocks are kept for them, and who is only on its way."""
    kept = tuple(leases)
    promises = tuple(Promise(held.peer_id, held.span) for held in kept)
    if not any(is_slow(held, True, now, usual_s) for held in kept):
        return promises
    dark = dark_blocks(model, planned(model, promises))
    return tuple(
        replace(promise, slow=is_slow(held, any(block in dark for block in held.span), now, usual_s))
        for held, promise in zip(kept, promises, strict=True)
    )


def pause_after(times: int) -> timedelta:
    """After so many hints that a server did not follow: 1, 2, 4, 8 … minutes, up to four hours."""
    return timedelta(minutes=min(240, 2 ** min(times - 1, 8)))


def _why_expired(held: Held) -> str:
    if held.accepted_at is None:
        return "not accepted in time"
    if held.deadline_at is not None and held.expires_at >= held.deadline_at:
        return "not online by the deadline"
    return "no sign of the server before the lease ran out"
