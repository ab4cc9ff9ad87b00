"""A row of equal cells as one path a level: a model's blocks, or a server's day. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Shape:
    """`d` is an SVG path, `level` the class that colours it."""

    level: str
    d: str


def runs_of(levels: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """(level, first, length) of each run of equals."""
    position = 0
    for level, group in groupby(levels):
        length = sum(1 for _ in group)
        yield level, position, length
        position += length


def strip(levels: Sequence[str]) -> tuple[Shape, ...]:
    """Cells of one unit by one, from left to right."""
    paths: dict[str, list[str]] = {}
    for level, first, length in runs_of(levels):
        paths.setdefault(level, []).append(f"M{first} 0h{length}v1h-{length}z")
    return tuple(Shape(level, "".join(parts)) for level, parts in sorted(paths.items()))
