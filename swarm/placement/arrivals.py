"""Where an arriving server helps most. Blocks without any server come before everything, the more the better; among equals
the window that lowers Φ most (in a rich swarm, where nobody is moved, that of the weakest blocks), and among those the first.
A block that could not be read is no block without a server: it draws nobody while there is anything that could be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from swarm.placement.decisions import Circumstances, Placement, Promise
from swarm.placement.holders import planned, stand_in
from swarm.placement.objective import NEWCOMER, Counts, Flags, Floats, Ground, arrival, survey, worth
from swarm.placement.words import few, nothing_known, weak, without_server
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
    unread = np.isin(np.arange(model.num_blocks), sorted(model.unread_blocks))
    usual = stand_in(holders) if rate is None else rate
    size = min(num_blocks, model.num_blocks)
    sizes = sorted({max(1, int(size * share)) for share in SHORTER}, reverse=True) if pace else [size]
    best: _Window | None = None
    for length in sizes:
        window = _best(ground, unread, length, pace.rate(length) if pace else usual, on_disk)
        if best is None or (window.filled, window.worth - CLEARLY) > (best.filled, best.worth):
            best = window
    assert best is not None
    return _placement(ground, unread, best)


def _best(ground: Ground, unread: Flags, size: int, rate: float, on_disk: Iterable[Span]) -> _Window:
    changes = arrival(ground, size, rate, NEWCOMER)
    # Where nothing could be read, servers that come one after another at least do not go to the same blocks.
    wanted = (ground.held == 0) & (~unread | unread.all())
    bare = np.concatenate(([0], np.cumsum(wanted)))
    filled = bare[size:] - bare[:-size]
    eligible = np.flatnonzero(filled == filled.max())
    lowest = float(changes[eligible].min())
    if ground.is_rich:
        unknown = unread & (ground.held == 0)
        start = _around_the_weakest(np.where(unknown, np.inf, ground.throughput), eligible, size)
    else:
        start = int(next(at for at in eligible if changes[at] <= lowest + 1e-9 * abs(lowest)))
    kept = {span.start for span in on_disk if len(span) >= size and span.start in eligible}
    if len(kept) == len(eligible):
        # Where all of them are there, as in a folder of the whole model, none is the nearer.
        kept = set()
    phi, blocks = ground.phi(), ground.num_blocks
    near = [at for at in kept if worth(phi + float(changes[at]), blocks) >= worth(phi + lowest, blocks) - CLEARLY]
    start = min(near) if near else start
    change = float(changes[start])
    return _Window(Span(start, start + size), int(filled[start]), change, worth(phi + change, blocks))


def _around_the_weakest(throughput: Floats, eligible: Counts, size: int) -> int:
    """The window whose throughputs, in ascending order, are the smallest: Petals' rule, which evens out a rich swarm best."""
    return int(min(eligible, key=lambda start: (sorted(throughput[start : start + size]), start)))


def _placement(ground: Ground, unread: Flags, window: _Window) -> Placement:
    span = window.span
    dark = [block for block in span if ground.held[block] == 0 and unread[block]]
    known = [block for block in span if block not in dark]
    if not known:
        return Placement(span, ReasonCode.BLIND, nothing_known(dark))
    code, reason, gain = _reason(ground, known, window)
    return Placement(span, code, f"{reason}; {nothing_known(dark)}" if dark else reason, gain)


def _reason(ground: Ground, known: list[int], window: _Window) -> tuple[ReasonCode, str, float | None]:
    """From what is `known` of the window alone."""
    holes = [block for block in known if ground.held[block] == 0]
    if holes:
        return ReasonCode.HOLE, without_server(holes), None
    gain = window.worth - worth(ground.phi(), ground.num_blocks)
    apart = ground.apart
    fewest = int(apart[known].min())
    if fewest <= FEW and fewest == int(apart[ground.held > 0].min()):
        lean = [block for block in known if apart[block] == fewest]
        return ReasonCode.THINNEST, few(lean, [int(ground.held[block]) for block in lean], fewest), gain
    least = float(ground.throughput[known].min())
    weakest = [block for block in known if ground.throughput[block] <= least * (1 + 1e-9)]
    return ReasonCode.WEAKEST, weak(weakest, least / ground.ideal), gain
