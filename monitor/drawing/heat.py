"""Time by block: which block lacked servers in which part of the last day. One path a level, at most 15 KB. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.drawing.strips import Shape, runs_of
from swarm.wire.spans import Span

LIMIT = 14_000
"""Bytes of all paths; where a swarm is so torn that they would be longer, slots are joined until they fit."""
ORDER = ("n0", "unknown", "n1", "")
"""The worst first: a slot shows the worst of its minutes; the last is no trouble seen."""


@dataclass(frozen=True, slots=True)
class Minute:
    """One watched minute: the blocks without a server, with one, and unread. `slot` is its place in time."""

    slot: int
    missing: tuple[Span, ...]
    thin: tuple[Span, ...]
    unread: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heat:
    slots: int
    blocks: int
    shapes: tuple[Shape, ...]
    unwatched: tuple[tuple[int, int], ...]
    """(first slot, slots) of times in which nobody looked."""

    @property
    def empty(self) -> bool:
        return not self.shapes and len(self.unwatched) == 1 and self.unwatched[0] == (0, self.slots)


def heat(num_blocks: int, slots: int, minutes: Iterable[Minute]) -> Heat:
    grid = [[""] * slots for _ in range(num_blocks)]
    watched = [False] * slots
    for minute in minutes:
        watched[minute.slot] = True
        for level, spans in (("n0", minute.missing), ("unknown", minute.unread), ("n1", minute.thin)):
            for span in spans:
                for block in range(span.start, min(span.end, num_blocks)):
                    grid[block][minute.slot] = _worse(grid[block][minute.slot], level)
    drawn = _drawn(grid, watched)
    while sum(len(shape.d) for shape in drawn.shapes) > LIMIT and drawn.slots > 1:
        grid = [_joined(row) for row in grid]
        watched = [any(pair) for pair in zip(watched[::2], [*watched[1::2], False], strict=False)]
        drawn = _drawn(grid, watched)
    return drawn


def _drawn(grid: Sequence[Sequence[str]], watched: Sequence[bool]) -> Heat:
    paths: dict[str, list[str]] = {}
    for block, row in enumerate(grid):
        for level, first, length in runs_of(row):
            if level:
                paths.setdefault(level, []).append(f"M{first} {block}h{length}")
    shapes = tuple(Shape(level, "".join(paths[level])) for level in ORDER if level in paths)
    blind = tuple((first, length) for state, first, length in runs_of("y" if seen else "n" for seen in watched) if state == "n")
    return Heat(len(watched), len(grid), shapes, blind)


def _joined(row: Sequence[str]) -> list[str]:
    return [_worse(left, right) for left, right in zip(row[::2], [*row[1::2], ""], strict=False)]


def _worse(one: str, other: str) -> str:
    return min(one, other, key=ORDER.index)
