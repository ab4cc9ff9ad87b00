"""Where an arriving server helps most. Blocks without any server come before everything, the more the better; among equals
the window that lowers Φ most (in a rich swarm, where nobody is moved, that of the weakest blocks), and among those the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from swarm.placement.decisions import Circumstances, Placement, Promise
from swarm.placement.holders import planned, stand_in
from swarm.placement.objective import NEWCOMER, Counts, Floats, Ground, arrival, survey, worth
from swarm.placement.words import few, weak, without_server
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span

CLEARLY = 0.01
"""Shares of U. Blocks on disk are preferred to better ones unless those are worth so much more: they save minutes of download.
A shorter span must be worth so much more than a longer one, which spares clients a hop."""
SHORTER = (1.0, 0.75, 0.5)
"""Shares of a server's capacity that are tried where its speed depends on the length of its span."""
FEW = 2
"""Up to so many servers on a block, their number says more than their throughput."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a server computes in tokens x blocks per second, and what its network passes in tokens per second, if known."""

    forward_rps: float
    network_rps: float | None = None

    def rate(self, blocks: int) -> float:
        """Tokens per second with a span of so many blocks: a request uses half of them on average (docs/protocol.md)."""
        compute = 2.0 * self.forward_rps / (blocks + 1)
        return compute if self.network_rps is None else min(compute, self.network_rps)


@dataclass(frozen=True, slots=True)
class _Window:
    span: Span
    filled: int
    change: float
    worth: float


def choose_span(
    model: Model,
    num_blocks: int,
    promises: Iterable[Promise] = (),
    *,
    known: Circumstances | None = None,
    rate: float | None = None,
    pace: Pace | None = None,
    on_disk: Iterable[Span] = (),
) -> Placement:
    """Where a server that can hold `num_blocks` should go. With a `pace`, a shorter span is offered where it is worth more.

    `rate` is what the server is believed to give; not known, it counts as the middle of the others.
    """
    holders = planned(model, promises, known.rates if known else None)
    ground = survey(model.num_blocks, holders, known)
    usual = stand_in(holders) if rate is None else rate
    size = min(num_blocks, model.num_blocks)
    sizes = sorted({max(1, int(size * share)) for share in SHORTER}, reverse=True) if pace else [size]
    best: _Window | None = None
    for length in sizes:
        window = _best(ground, length, pace.rate(length) if pace else usual, on_disk)
        if best is None or (window.filled, window.worth - CLEARLY) > (best.filled, best.worth):
            best = window
    assert best is not None
    return _placement(model, ground, best)


def _best(ground: Ground, size: int, rate: float, on_disk: Iterable[Span]) -> _Window:
    changes = arrival(ground, size, rate, NEWCOMER)
    bare = np.concatenate(([0], np.cumsum(ground.held == 0)))
    filled = bare[size:] - bare[:-size]
    eligible = np.flatnonzero(filled == filled.max())
    lowest = float(changes[eligible].min())
    if ground.is_rich:
        start = _around_the_weakest(ground.throughput, eligible, size)
    else:
        start = int(next(at for at in eligible if changes[at] <= lowest + 1e-9 * abs(lowest)))
    kept = [span.start for span in on_disk if len(span) >= size and span.start in eligible]
    phi, blocks = ground.phi(), ground.num_blocks
    near = [at for at in kept if worth(phi + float(changes[at]), blocks) >= worth(phi + lowest, blocks) - CLEARLY]
    start = min(near) if near else start
    change = float(changes[start])
    return _Window(Span(start, start + size), int(filled[start]), change, worth(phi + change, blocks))


def _around_the_weakest(throughput: Floats, eligible: Counts, size: int) -> int:
    """The window whose throughputs, in ascending order, are the smallest: Petals' rule, which evens out a rich swarm best."""
    return int(min(eligible, key=lambda start: (sorted(throughput[start : start + size]), start)))


def _placement(model: Model, ground: Ground, window: _Window) -> Placement:
    span = window.span
    holes = [block for block in span if ground.held[block] == 0]
    if holes:
        return Placement(span, ReasonCode.HOLE, without_server(holes))
    gain = window.worth - worth(ground.phi(), ground.num_blocks)
    apart = ground.apart
    fewest = int(apart[span.start : span.end].min())
    if fewest <= FEW and fewest == int(apart[ground.held > 0].min()):
        lean = [block for block in span if apart[block] == fewest]
        return Placement(span, ReasonCode.THINNEST, few(lean, [ground.held[block] for block in lean], fewest), gain)
    least = float(ground.throughput[span.start : span.end].min())
    weakest = [block for block in span if ground.throughput[block] <= least * (1 + 1e-9)]
    return Placement(span, ReasonCode.WEAKEST, weak(weakest, least / ground.ideal), gain)
