"""What the planner minimises: Φ = Σ over blocks of (T/U + 0.02)^-32, plus a weight times the expected number of blocks that
lose all their holders within the hour.

T is a block's throughput, U what every block would have if the servers' blocks x throughput were spread perfectly. The
first sum is a soft minimum: its -32nd root is close to the bottleneck's share of U. Holes are not in it: they are counted, and
come before it. Arrays are in the order of the holders, which is that of their spans and ids, so that sums are reproducible.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarm.placement.decisions import Circumstances
from swarm.placement.holders import Holder, stand_in

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

FLOOR = 0.02
"""Keeps a block of almost no throughput from outweighing everything."""
EXPONENT = 32
"""A power of two. With 16 the many blocks that are nearly the weakest outweigh the weakest, and moves leave it where it is;
with 64 the second weakest is not seen, and a block with a single holder hardly."""
RISK_WEIGHT = 1e6
"""Beside the first sum of an even swarm it weighs about as much as 20,000 did with an exponent of 16: that raised the share of
time with two holders everywhere from 0.92 to 0.9998 in simulated churn, at no cost in throughput."""
HORIZON_S = 3600.0
LIFE_SHAPE = 0.6
"""Sessions of volunteers are Weibull with a falling hazard: who has stayed long, stays. Published shapes: 0.34 to 0.82."""
LIFE_SCALE_S = 8 * 3600.0
"""One prior for all hosts; histories of single hosts bought nothing measurable."""
UNKNOWN_AGE_S = 3600.0
RICH_SERVERS, RICH_CAPACITY = 300, 50.0
"""From here on arrivals alone keep the swarm even, better than any moves do."""


def departure(ages_s: Floats) -> Floats:
    """The probability that servers of these ages are gone within the hour."""
    ages = np.maximum(ages_s, 0.0)
    odds: Floats = 1.0 - np.exp((ages / LIFE_SCALE_S) ** LIFE_SHAPE - ((ages + HORIZON_S) / LIFE_SCALE_S) ** LIFE_SHAPE)
    return odds


NEWCOMER = float(departure(np.zeros(1))[0])


def softness(throughput: Floats, ideal: float) -> Floats:
    """(T/U + 0.02)^-32 by squaring, which is a tenth of the cost of a power."""
    share = throughput / ideal + FLOOR
    for _ in range(EXPONENT.bit_length() - 1):
        share = share * share
    inverse: Floats = 1.0 / share
    return inverse


def worth(phi: float, blocks: int) -> float:
    """Φ in shares of U, more is better: that of a swarm whose `blocks` are all alike. A move gains a difference of these."""
    return float((phi / blocks) ** (-1.0 / EXPONENT)) if phi > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Ground:
    """The holders as arrays. `held` counts those of a block, `online` those of them that are `up`. `operators` number those who
    go down together; `shared` counts each such operator's servers on a block, and is empty for operators of a single server,
    numbered -1."""

    holders: tuple[Holder, ...]
    starts: Counts
    ends: Counts
    up: Flags
    rates: Floats
    odds: Floats
    operators: Counts
    shared: Counts
    throughput: Floats
    alone: Floats
    held: Counts
    online: Counts
    ideal: float

    @property
    def num_blocks(self) -> int:
        return len(self.throughput)

    @property
    def capacity(self) -> float:
        """Blocks that the servers hold together, in multiples of the model."""
        return float((self.ends - self.starts).sum()) / self.num_blocks

    @property
    def apart(self) -> Counts:
        """Holders of a block that do not go down together: those of one operator count once."""
        apart: Counts = self.held - np.maximum(self.shared - 1, 0).sum(axis=0)
        return apart

    @property
    def is_rich(self) -> bool:
        return len(self.holders) >= RICH_SERVERS and self.capacity > RICH_CAPACITY

    def phi(self, weight: float = RISK_WEIGHT, *, soft: bool = True) -> float:
        known = self.held > 0
        risk = weight * float(self.alone[known].sum())
        return risk + (float(softness(self.throughput[known], self.ideal).sum()) if soft else 0.0)

    def bottleneck(self) -> float:
        """The least throughput of a held block, as a share of U."""
        known = self.throughput[self.held > 0]
        return float(known.min()) / self.ideal if len(known) else 0.0


def survey(num_blocks: int, holders: Sequence[Holder], known: Circumstances | None = None) -> Ground:
    """The ground on which moves are judged; U is that of these holders."""
    facts = known or Circumstances()
    usual = stand_in(holders)
    edges = np.array([(holder.span.start, holder.span.end) for holder in holders], dtype=np.int64).reshape(-1, 2)
    rates = np.array([usual if h.throughput is None else h.throughput for h in holders], dtype=np.float64)
    operators, groups = _operators(holders, facts.operators)
    ages = facts.ages_s
    odds = departure(np.array([ages.get(holder.peer_id, UNKNOWN_AGE_S) for holder in holders], dtype=np.float64))
    for group in range(groups):
        # Servers that go down together have one probability, that of the likeliest.
        odds[operators == group] = odds[operators == group].max()
    up = np.array([holder.online for holder in holders], dtype=np.bool_)
    return _ground(num_blocks, holders, edges, up, rates, odds, operators, groups)


def survey_after(before: Ground, holders: Sequence[Holder], peer_id: str) -> Ground:
    """As `survey(holders)`, to the last digit, where they differ from `before` in one move: that of `peer_id`."""
    old = next(at for at, holder in enumerate(before.holders) if holder.peer_id == peer_id)
    new = next(at for at, holder in enumerate(holders) if holder.peer_id == peer_id)
    order = np.delete(np.arange(len(holders)), old)
    order = np.insert(order, new, old)
    edges = np.stack((before.starts, before.ends), axis=1)[order]
    edges[new] = holders[new].span.start, holders[new].span.end
    up, rates, odds, operators = before.up[order], before.rates[order], before.odds[order], before.operators[order]
    up[new] = holders[new].online
    return _ground(before.num_blocks, holders, edges, up, rates, odds, operators, len(before.shared))


def _ground(
    num_blocks: int,
    holders: Sequence[Holder],
    edges: Counts,
    up: Flags,
    rates: Floats,
    odds: Floats,
    operators: Counts,
    groups: int,
) -> Ground:
    """`edges` `[holders, 2]`: first block and end of each span."""
    starts, ends = np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])
    lengths = ends - starts
    blocks = _blocks(starts, lengths)
    throughput: Floats = np.bincount(blocks, np.repeat(rates, lengths), num_blocks).astype(np.float64)
    held = np.bincount(blocks, minlength=num_blocks)
    online = np.bincount(blocks[np.repeat(up, lengths)], minlength=num_blocks)
    shared = np.zeros((groups, num_blocks), dtype=np.int64)
    single = operators < 0
    log_odds = np.bincount(blocks, np.repeat(np.where(single, np.log(odds), 0.0), lengths), num_blocks)
    for row in np.flatnonzero(~single):
        start, end, group = starts[row], ends[row], operators[row]
        log_odds[start:end] += np.where(shared[group, start:end] == 0, math.log(odds[row]), 0.0)
        shared[group, start:end] += 1
    ideal = float((rates * lengths).sum()) / num_blocks or 1.0
    alone: Floats = np.where(held > 0, np.exp(log_odds), 1.0)
    return Ground(tuple(holders), starts, ends, up, rates, odds, operators, shared, throughput, alone, held, online, ideal)


def best_windows(
    ground: Ground, movers: Counts, sizes: Counts, *, weight: float = RISK_WEIGHT, soft: bool = True
) -> tuple[Floats, Counts]:
    """For each mover the window of its size for which it should leave its span: the change of Φ, and where the window starts.

    Of windows that differ in the last digits only, the first."""
    where = np.arange(ground.num_blocks)
    own = (where >= ground.starts[movers, None]) & (where < ground.ends[movers, None])
    known = ground.held > 0
    leaving, coming = (weight * risk for risk in _risks(ground, movers, own))
    if soft:
        rates = ground.rates[movers, None]
        now = softness(ground.throughput, ground.ideal)
        left_alone = np.maximum(ground.throughput - own * rates, 0.0)
        left = np.where(own, softness(left_alone, ground.ideal), now)
        leaving = leaving + (left - now)
        coming = coming + (softness(left_alone + rates, ground.ideal) - left)
    loss = (leaving * known).sum(axis=1)
    gains = coming * known
    lowest, starts = np.empty(len(movers)), np.empty(len(movers), dtype=np.int64)
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        changes = _sliding(gains[rows], int(size)) + loss[rows, None]
        lowest[rows] = least = changes.min(axis=1)
        starts[rows] = (changes <= (least + 1e-9 * np.abs(least))[:, None]).argmax(axis=1)
    return lowest, starts


def arrival(ground: Ground, size: int, rate: float, odds: float) -> Floats:
    """The change of Φ for each start of a window of `size` blocks that a new server would serve. Holes do not count."""
    known = ground.held > 0
    now = softness(ground.throughput, ground.ideal)
    change = softness(ground.throughput + rate, ground.ideal) - now + RISK_WEIGHT * ground.alone * (odds - 1.0)
    changes: Floats = _sliding((change * known)[None, :], size)[0]
    return changes


def _risks(ground: Ground, movers: Counts, own: Flags) -> tuple[Floats, Floats]:
    """Change of each block's probability of losing all holders: when the mover leaves its span, and when it then comes."""
    odds = ground.odds[movers, None]
    alone = np.broadcast_to(ground.alone, own.shape)
    left = np.where(own, np.minimum(alone / odds, 1.0), alone)
    beside = np.zeros(own.shape, dtype=np.bool_)
    groups = ground.operators[movers]
    for row in np.flatnonzero(groups >= 0):
        beside[row] = ground.shared[groups[row]] - own[row] > 0
    left = np.where(beside, alone, left)
    going: Floats = left - alone
    coming: Floats = np.where(beside, 0.0, left * (odds - 1.0))
    return going, coming


def _sliding(rows: Floats, size: int) -> Floats:
    """Sums of windows, put together from windows of 1, 2, 4, ... blocks: a difference of running sums would lose small terms
    beside large ones."""
    width = rows.shape[1] - size + 1
    total = np.zeros((len(rows), width))
    done, power = 0, 1
    while True:
        if size & power:
            total += rows[:, done : done + width]
            done += power
        if done == size:
            return total
        rows = rows[:, :-power] + rows[:, power:]
        power *= 2


def _blocks(starts: Counts, lengths: Counts) -> Counts:
    """Every holder's blocks, one after the other."""
    offsets = np.repeat(np.cumsum(lengths) - lengths, lengths)
    spread: Counts = np.repeat(starts, lengths) + np.arange(int(lengths.sum())) - offsets
    return spread


def _operators(holders: Sequence[Holder], operators: Mapping[str, str]) -> tuple[Counts, int]:
    """A number for each holder whose operator has others here too, -1 for the rest; and how many such operators there are."""
    if not operators:
        return np.full(len(holders), -1, dtype=np.int64), 0
    names = [operators.get(holder.peer_id) for holder in holders]
    several = sorted(name for name, count in Counter(names).items() if name is not None and count > 1)
    numbers = {name: number for number, name in enumerate(several)}
    return np.array([numbers.get(name, -1) if name else -1 for name in names], dtype=np.int64), len(several)
