"""A server's last day: a strip of its states by minute, and its moves in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from monitor.drawing.strips import Shape, runs_of, strip
from monitor.history.peers import Sample
from swarm.wire.spans import Span

MINUTES = 1_440
LISTED = 40
"""Changes that are listed; a server that changes more often than that has another problem."""


@dataclass(frozen=True, slots=True)
class Change:
    iso: str
    clock: str
    level: str
    words: str


@dataclass(frozen=True, slots=True)
class Timeline:
    shapes: tuple[Shape, ...]
    changes: tuple[Change, ...]
    moves: str
    width: int = MINUTES


def timeline(samples: Sequence[Sample], watched: frozenset[int], now: float) -> Timeline:
    """`watched` are minutes since the epoch in which anyone looked."""
    last = int(now // 60)
    known = {int(sample.at // 60): sample for sample in samples}
    levels = [_level(known.get(minute), minute in watched) for minute in range(last - MINUTES + 1, last + 1)]
    return Timeline(strip(levels), _changes(levels, known, last), _moves(samples))


def _level(sample: Sample | None, watched: bool) -> str:
    if sample is None:
        return "absent" if watched else "unwatched"
    return sample.state.replace(" ", "-")


def _changes(levels: Sequence[str], known: dict[int, Sample], last: int) -> tuple[Change, ...]:
    """Newest first: a state begins, or a span does."""
    found: list[Change] = []
    span: Span | None = None
    for level, first, length in runs_of(levels):
        for minute in range(last - MINUTES + 1 + first, last - MINUTES + 1 + first + length):
            sample = known.get(minute)
            moved = sample is not None and sample.span != span
            if minute == last - MINUTES + 1 + first or moved:
                words = f"{_WORDS.get(level, level.replace('-', ' '))}{f', {sample.span.in_words()}' if sample else ''}"
                at = datetime.fromtimestamp(minute * 60, UTC)
                found.append(Change(at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%-d %b %H:%M UTC"), level, words))
            if sample is not None:
                span = sample.span
    return tuple(reversed(found))[:LISTED]


_WORDS = {"absent": "not in the swarm", "unwatched": "not watched"}


def _moves(samples: Sequence[Sample]) -> str:
    """`Moved 3 times in 24 hours, 31 min of loading; once back to the same blocks.`"""
    moves = [(before.span, after.span) for before, after in pairwise(samples) if before.span != after.span]
    loading = sum(sample.state == "joining" for sample in samples)
    lost = f", {loading} min of loading" if loading else ""
    if not moves:
        return f"Did not move in 24 hours{lost}." if samples else ""
    held: list[Span] = [moves[0][0]]
    back = 0
    for _, span in moves:
        back += span in held
        held.append(span)
    again = f"; {_times(back)} back to blocks that it had held" if back else ""
    return f"Moved {_times(len(moves))} in 24 hours{lost}{again}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
