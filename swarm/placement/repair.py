"""Giving holes a server again with the fewest reloads, by servers that may leave at once. Throughput only breaks ties.

Servers whose leaving needs another one to come first are the business of `chains`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from swarm.placement.decisions import Move, Promise
from swarm.placement.holders import Holder, counts, holes_of, moved, planned, safe_donors, stand_in, strengths
from swarm.snapshot import Model
from swarm.wire.spans import Span

EXACT_UP_TO = 50
"""Of so few possible donors all pairs are tried: 1,225 of them, some ten milliseconds."""
FILLINGS = 8
"""Ways to fill holes that are tried for each server of a pair; more there are only where a hole is longer than a span."""


def repair(
    model: Model,
    promises: Iterable[Promise] = (),
    *,
    movable: Collection[str] | None = None,
    capacities: Mapping[str, int] | None = None,
) -> tuple[Move, ...]:
    """The moves that give holes a server again, the most useful first; empty where there is no hole or no safe donor.

    Each move fills at least one block, each server moves at most once. `capacities` are block counts that servers told us;
    a server that did not tell is taken to hold as many blocks as it serves.
    """
    kept = list(promises)
    promised = {promise.peer_id for promise in kept}
    return direct_moves(model, planned(model, kept), promised, movable, capacities or {})[0]


def direct_moves(
    model: Model,
    holders: list[Holder],
    promised: Collection[str],
    movable: Collection[str] | None,
    capacities: Mapping[str, int],
) -> tuple[tuple[Move, ...], list[Holder]]:
    """The moves, and the holders once they are made."""
    moves: list[Move] = []
    leaving = set(promised)
    while step := _next(_Situation(model, holders, leaving, movable, capacities)):
        moves += step
        for move in step:
            holders = moved(holders, move.peer_id, move.target)
            leaving.add(move.peer_id)
    return tuple(moves), holders


class _Situation:
    """The plan at one step of a repair, with what each size of span could fill."""

    def __init__(
        self,
        model: Model,
        holders: list[Holder],
        promised: Collection[str],
        movable: Collection[str] | None,
        capacities: Mapping[str, int],
    ) -> None:
        self.model = model
        self.holders = holders
        self.holes = holes_of(model, holders)
        self.donors = safe_donors(model, self.holders, promised, movable) if self.holes else []
        self.staying = counts(model.num_blocks, self.holders, online_only=True)
        self._capacities = capacities
        self._fillings: dict[int, tuple[int, ...]] = {}

    def size(self, donor: Holder) -> int:
        return min(self._capacities.get(donor.peer_id, len(donor.span)), self.model.num_blocks)

    def fillings(self, size: int) -> tuple[int, ...]:
        """The sets of holes that a window of this size can fill, as bits; those within another are left out."""
        if size not in self._fillings:
            windows = range(self.model.num_blocks - size + 1)
            sets = {sum(1 << b for b in self.holes if start <= b < start + size) for start in windows} - {0}
            largest = (s for s in sets if not any(s != other and s & other == s for other in sets))
            self._fillings[size] = tuple(sorted(largest, key=lambda filling: (-filling.bit_count(), filling)))
        return self._fillings[size]

    def move(self, donor: Holder, filling: int | None = None) -> Move:
        """The donor's move to the window that fills these holes (None: the most) and is, beyond them, the weakest."""
        others = strengths(self.model.num_blocks, (holder for holder in self.holders if holder is not donor))
        target = _best_window(others, self.size(donor), self.holes, filling)
        return Move(donor.peer_id, donor.span, target, tuple(block for block in target if block in self.holes))


def _next(now: _Situation) -> tuple[Move, ...]:
    first = _best_single(now)
    if first is None or len(first.filled) == len(now.holes) or len(now.donors) > EXACT_UP_TO:
        return (first,) if first else ()
    pair = _best_pair(now, at_least=len(first.filled) + _second_after(now, first) + 1)
    return pair or (first,)


def _best_single(now: _Situation) -> Move | None:
    """By the donor that fills the most; of equals the one whose blocks are the least weak without it, then the slowest."""
    held = counts(now.model.num_blocks, now.holders)
    usual = stand_in(now.holders)
    ranked = []
    for donor in now.donors:
        filled = max((filling.bit_count() for filling in now.fillings(now.size(donor))), default=0)
        if filled:
            weakest_left = min(held[donor.span.start : donor.span.end]) - 1
            rate = usual if donor.throughput is None else donor.throughput
            ranked.append(((-filled, -weakest_left, rate, donor.peer_id), donor))
    return now.move(min(ranked, key=lambda pair: pair[0])[1]) if ranked else None


def _second_after(now: _Situation, first: Move) -> int:
    """How many more holes one more safe donor could fill after `first`."""
    left = sum(1 << block for block in now.holes if block not in first.target)
    mover = next(donor for donor in now.donors if donor.peer_id == first.peer_id)
    return max(
        (_most(now, other, left) for other in now.donors if other is not mover and _both_may(now, mover, other)), default=0
    )


def _best_pair(now: _Situation, at_least: int) -> tuple[Move, ...]:
    """The two moves that together fill the most holes, and at least so many; empty where no two do."""
    best: tuple[int, Holder, int, Holder, int] | None = None
    for at, one in enumerate(now.donors):
        for other in now.donors[at + 1 :]:
            if not _both_may(now, one, other):
                continue
            for a in now.fillings(now.size(one))[:FILLINGS]:
                for b in now.fillings(now.size(other))[:FILLINGS]:
                    filled = (a | b).bit_count()
                    if filled >= at_least and (best is None or filled > best[0]):
                        best = (filled, one, a, other, b)
    if best is None:
        return ()
    _, one, a, other, b = best
    first, second = now.move(one, a), now.move(other, b)
    alone = tuple(block for block in second.filled if block not in first.filled)
    return (first, Move(second.peer_id, second.origin, second.target, alone)) if alone else (first,)


def _most(now: _Situation, donor: Holder, holes: int) -> int:
    return max(((filling & holes).bit_count() for filling in now.fillings(now.size(donor))), default=0)


def _both_may(now: _Situation, one: Holder, other: Holder) -> bool:
    """May both leave? Their common blocks need a third server online."""
    common = now.staying[max(one.span.start, other.span.start) : min(one.span.end, other.span.end)]
    return min(common, default=3) >= 3


def _best_window(others: Sequence[tuple[int, float]], size: int, holes: Collection[int], filling: int | None) -> Span:
    windows = [Span(start, start + size) for start in range(len(others) - size + 1)]
    wanted = holes if filling is None else [block for block in holes if filling >> block & 1]
    filled = [sum(block in window for block in wanted) for window in windows]
    most = max(filled)
    return min(
        (window for count, window in zip(filled, windows, strict=True) if count == most),
        key=lambda window: (sorted(others[block] for block in window), window.start),
    )
