"""Can this server make a move, and should it? Pure: its situation in, an objection or none out. Petals' servers move for
throughput; ours leave their blocks for a hole at once, and for anything else only when nobody is hurt by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockserver.serving.told import MOST_MOVES, WITHIN_S
from swarm.wire.hints import DeclineReason, Urgency
from swarm.wire.spans import Span

NOT_AGAIN_S = {
    DeclineReason.PINNED: 86_400.0,
    DeclineReason.MEMORY: 3_600.0,
    DeclineReason.DISK: 600.0,
    DeclineReason.FAILED: 600.0,
    DeclineReason.NO_SUCH_BLOCKS: 600.0,
}
"""For how long there is no use in asking again for any move. Not listed is what passes, or keeps no hole from being filled."""


@dataclass(frozen=True, slots=True)
class Situation:
    """`dwelt_s` is the time with the present blocks; `fetch_bytes` is what loading the leased ones would write to the disk."""

    serving: Span | None
    pinned: bool = False
    sessions_active: int = 0
    dwelt_s: float = 0.0
    min_dwell_s: float = 0.0
    fetch_bytes: int = 0
    disk_free_bytes: int | None = None
    told_rest_s: float = 0.0
    """For how long it follows no lease, since it followed so many lately (`told`)."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a lease is declined: one of the words that the coordinator knows, and the same for people."""

    reason: DeclineReason
    words: str
    rest_s: float = 0.0
    """Until when it stands, where that is known."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.words}"

    @property
    def not_again_s(self) -> float:
        return max(self.rest_s, NOT_AGAIN_S.get(self.reason, 0.0))


def misfit(span: Span, num_blocks_max: int, whole: int) -> Objection | None:
    """Why blocks of a model of `whole` blocks cannot be loaded here at all; None where they can. A coordinator may know another
    size of the model, or remember what fitted before the operator gave this server less."""
    if span.end > whole:
        return Objection(DeclineReason.NO_SUCH_BLOCKS, f"the model has blocks 0 to {whole - 1}")
    if len(span) > num_blocks_max:
        return Objection(DeclineReason.MEMORY, f"{len(span)} blocks are more than the {num_blocks_max} that fit here")
    return None


def objection(urgency: Urgency, now: Situation) -> Objection | None:
    """Why a move of this urgency is not made, whoever wants it; None to make it."""
    if now.pinned:
        where = now.serving.in_words() if now.serving else "fixed blocks"
        return Objection(DeclineReason.PINNED, f"the operator set this server to {where}")
    if now.disk_free_bytes is not None and now.fetch_bytes > now.disk_free_bytes:
        words = f"{now.fetch_bytes / 1e9:.1f} GB to fetch, {now.disk_free_bytes / 1e9:.1f} GB free"
        return Objection(DeclineReason.DISK, words)
    if now.serving is not None and now.told_rest_s > 0.0:
        words = f"moved {MOST_MOVES} times within {WITHIN_S / 60:.0f} minutes by the coordinator's word, and no oftener"
        return Objection(DeclineReason.TOO_SOON, words, now.told_rest_s)
    if now.serving is None or urgency is Urgency.HOLE:
        return None
    if now.dwelt_s < now.min_dwell_s:
        words = f"moved {now.dwelt_s:.0f} s ago, and a move that fills no hole waits for {now.min_dwell_s:.0f} s"
        return Objection(DeclineReason.TOO_SOON, words)
    if now.sessions_active:
        return Objection(DeclineReason.BUSY_SESSIONS, f"{now.sessions_active} sessions are open, and no hole waits")
    return None
