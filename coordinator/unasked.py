"""Why a server was not counted on for a move, in words that anyone may read: what it said, and what the planner's rules say.

Knows words for `coordinator.pauses`' rule, ages and past moves; not whether the move itself would be right
(`coordinator.explain`). What a server wrote as its reason to decline stays out: those are a stranger's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.followers import FOLLOWER_LIFE
from coordinator.models import Follower
from coordinator.pauses import Hindrance, hindrance
from monitor.published import ago
from swarm.placement import COOL_DOWN_S, MIN_AGE_S, Circumstances
from swarm.wire.spans import Span


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of one model at one moment. `fills_hole`: for a hole everybody is asked who asks for hints; for anything
    less nobody who has just come or moved, or is at work."""

    swarm: str
    prefix: str
    fills_hole: bool
    now: datetime
    shown: Mapping[str, Span] = field(default_factory=dict)
    """Where the crawl saw each server."""


def why_not(asked: Asked, peers: Iterable[str], known: Circumstances) -> dict[str, str]:
    """By peer id, for those of `peers` against whom something speaks. One query."""
    rows = Follower.objects.filter(swarm=asked.swarm, prefix=asked.prefix, peer_id__in=list(peers))
    followers = {row.peer_id: row for row in rows}
    told = {peer_id: _why(asked, peer_id, followers.get(peer_id), known) for peer_id in peers}
    return {peer_id: why for peer_id, why in told.items() if why}


def _why(asked: Asked, peer_id: str, follower: Follower | None, known: Circumstances) -> str:
    if follower is None:
        return "it does not ask for hints"
    silent = abs(asked.now - follower.asked_at)
    if silent >= FOLLOWER_LIFE:
        return f"it has not asked for hints for {ago(silent.total_seconds())}"
    shown = asked.shown.get(peer_id)
    if shown is not None and follower.span != shown:
        said = follower.span.in_words() if follower.span else "no blocks"
        return f"it says that it serves {said}, and the crawl saw it with {shown.in_words()}"
    match hindrance(follower, asked.fills_hole, asked.now):
        case Hindrance.PAUSE:
            return f"it did not follow the hints before, and is not asked until {follower.not_before:%H:%M:%S} UTC"
        case Hindrance.SESSIONS:
            return f"{follower.sessions} {'session is' if follower.sessions == 1 else 'sessions are'} open on it"
        case Hindrance.PAUSE_FOR_LESS:
            until = f"{follower.elective_not_before:%H:%M:%S} UTC"
            return f"it declined to move for less than a hole, and is not asked to until {until}"
    return "" if asked.fills_hole else _why_not_rested(peer_id, known)


def _why_not_rested(peer_id: str, known: Circumstances) -> str:
    age, moved = known.ages_s.get(peer_id), known.moved_s_ago.get(peer_id)
    if age is not None and age < MIN_AGE_S:
        return f"it came {ago(age)} ago, and nobody is asked to move in the first {MIN_AGE_S / 60:.0f} minutes"
    if moved is not None and moved < COOL_DOWN_S:
        return f"it moved {ago(moved)} ago, and nobody moves twice in {COOL_DOWN_S / 60:.0f} minutes"
    return ""
