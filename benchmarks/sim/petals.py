"""Petals' own rule for choosing blocks, written anew from its description (docs/planner.md): every server for itself.

An arrival takes the window whose throughputs, in ascending order, are the smallest. Now and then a server takes itself out,
puts itself back in, and lets everybody do so until nobody wants to move; it moves if the bottleneck now is below 0.75 of the
one then, and if its leaving opens no hole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

QUALITY = 0.75
EPS = 1e-3
SWEEPS = 12
"""Best responses settle within a handful of sweeps; the bound is for rounding loops."""

Seat = tuple[int, int, float]
"""Start, number of blocks, throughput."""


def best_start(throughput: Sequence[float], size: int) -> int:
    """The first of the windows that are smallest in ascending order. Only those around the weakest block can be."""
    last = len(throughput) - size
    weakest = min(throughput)
    best: list[float] | None = None
    chosen = 0
    seen = -1
    for block, value in enumerate(throughput):
        if value != weakest:
            continue
        for start in range(max(0, block - size + 1, seen + 1), min(last, block) + 1):
            seen = start
            window = sorted(throughput[start : start + size])
            if best is None or window < best:
                best, chosen = window, start
    return chosen


def totals(seats: Sequence[Seat], blocks: int) -> list[float]:
    throughput = [0.0] * blocks
    for start, size, rate in seats:
        for block in range(start, start + size):
            throughput[block] += rate
    return throughput


def wants_to_move(throughput: Sequence[float], seat: Seat, ideal: Callable[[], float]) -> bool:
    """`ideal` gives the bottleneck at the fixed point (`settled`); it is asked last, since it is dear."""
    bottleneck = min(throughput)
    start, size, rate = seat
    without = [value - rate * (1 + EPS) if start <= block < start + size else value for block, value in enumerate(throughput)]
    if bottleneck > 0 and min(without) <= 0:
        return False
    if best_start(without, size) == start:
        return False
    return bottleneck / ideal() < QUALITY - EPS


def settled(seats: Sequence[Seat], blocks: int, draw: random.Random) -> float:
    """The bottleneck once nobody would rather be elsewhere."""
    moving = list(seats)
    throughput = totals(moving, blocks)
    order = list(range(len(moving)))
    for _ in range(SWEEPS):
        draw.shuffle(order)
        moved = False
        for one in order:
            start, size, rate = moving[one]
            for block in range(start, start + size):
                throughput[block] -= rate * (1 + EPS)
            target = best_start(throughput, size)
            for block in range(start, start + size):
                throughput[block] += rate * EPS
            for block in range(target, target + size):
                throughput[block] += rate
            if target != start:
                moving[one] = (target, size, rate)
                moved = True
        if not moved:
            break
    return min(throughput)
