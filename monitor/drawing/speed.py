"""Throughput as two pictures: a step line over the blocks, and the servers' own figures as dots with three marks. Pure.

Tokens per second throughout. What is not shared is left out, never drawn as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BLOCK, HEIGHT = 10, 100


@dataclass(frozen=True, slots=True)
class Steps:
    """`low_x` is where the lowest step begins, `low` its value; `top` is the value at the upper edge."""

    width: int
    d: str
    top: float
    low: float
    low_block: int
    low_x: int
    low_y: float
    height: int = HEIGHT
    block: int = BLOCK


@dataclass(frozen=True, slots=True)
class Spread:
    """On a scale of powers of ten: dots as strokes without length, and the three marks' places and values."""

    dots: str
    marks: tuple[tuple[float, str, float], ...]
    low: float
    high: float
    count: int
    width: int = 1000


def steps(values: Sequence[float | None]) -> Steps | None:
    """One value a block; None where nobody says."""
    known = [(value, index) for index, value in enumerate(values) if value is not None]
    if not known:
        return None
    low, block = min(known)
    top = max(value for value, _ in known) or 1.0
    parts: list[str] = []
    drawing = False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        y = round(HEIGHT * (1 - value / top), 1)
        parts.append(f"V{y:g}" if drawing else f"M{index * BLOCK} {y:g}")
        parts.append(f"h{BLOCK}")
        drawing = True
    return Steps(len(values) * BLOCK, "".join(parts), top, low, block, block * BLOCK, round(HEIGHT * (1 - low / top), 1))


def spread(values: Sequence[float]) -> Spread | None:
    """Of servers that say theirs; None where fewer than two do."""
    known = sorted(value for value in values if value > 0)
    if len(known) < 2:
        return None
    low, high = math.floor(math.log10(known[0])), math.ceil(math.log10(known[-1]))
    high = max(high, low + 1)

    def x(value: float) -> float:
        return round(1000 * (math.log10(value) - low) / (high - low), 1)

    # Dots side by side where they would lie on each other: the row is one of eleven, by rank.
    dots = "".join(f"M{x(value):g} {5 + 4 * (rank * 37 % 11)}h0" for rank, value in enumerate(known))
    marks = tuple(
        (x(value), name, value) for name, share in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9)) for value in (_at(known, share),)
    )
    return Spread(dots, marks, 10.0**low, 10.0**high, len(known))


def _at(ordered: Sequence[float], share: float) -> float:
    """The value below which this share lies, by the nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
