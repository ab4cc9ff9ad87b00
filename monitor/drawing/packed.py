"""All servers of a model in one picture: each a bar from its first block to its last, packed into as few rows as there are
servers on the fullest block. The depth of the pile is the redundancy; a gap is a band. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from monitor.drawing.strips import Shape
from swarm.wire.spans import Span

BLOCK = 10
"""Units a block is wide, so that neighbours can stand apart by a fraction of one."""
ROW, BAR = 7, 5


@dataclass(frozen=True, slots=True)
class Packed:
    """`width` and `height` in units; `lines` are strokes of `BAR` units, `boxes` outlines; `bands` are (x, width) of holes."""

    width: int
    height: int
    lines: tuple[Shape, ...]
    boxes: tuple[Shape, ...]
    bands: tuple[tuple[int, int], ...]
    bar: int = BAR


def packed(num_blocks: int, servers: Iterable[tuple[Span, str]], holes: Iterable[Span]) -> Packed:
    """`servers` are spans and levels. `online` becomes a line, everything else a box."""
    lines: dict[str, list[str]] = {}
    boxes: dict[str, list[str]] = {}
    rows = 0
    for row, span, level in _in_rows(servers, num_blocks):
        rows = max(rows, row + 1)
        x, length = span.start * BLOCK + 1, len(span) * BLOCK - 2
        if level == "online":
            lines.setdefault(level, []).append(f"M{x} {row * ROW + 3}h{length}")
        else:
            boxes.setdefault(level, []).append(f"M{x} {row * ROW + 1}h{length}v{BAR - 1}h-{length}z")
    return Packed(
        width=num_blocks * BLOCK,
        height=max(rows, 1) * ROW,
        lines=_shapes(lines),
        boxes=_shapes(boxes),
        bands=tuple((hole.start * BLOCK, len(hole) * BLOCK) for hole in holes),
    )


def _in_rows(servers: Iterable[tuple[Span, str]], num_blocks: int) -> Iterable[tuple[int, Span, str]]:
    """The topmost row that is free: by first block this needs no more rows than the fullest block has servers."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    rows = 0
    for span, level in sorted(servers, key=lambda item: (item[0].start, -item[0].end, item[1])):
        shown = Span(span.start, min(span.end, num_blocks)) if span.start < num_blocks else None
        if shown is None:
            continue
        while busy and busy[0][0] <= shown.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, rows = rows, rows + 1
        heapq.heappush(busy, (shown.end, row))
        yield row, shown, level


def _shapes(paths: dict[str, list[str]]) -> tuple[Shape, ...]:
    return tuple(Shape(level, "".join(parts)) for level, parts in sorted(paths.items()))
