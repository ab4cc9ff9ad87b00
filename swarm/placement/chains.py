"""Holes that no server free to leave is large enough for: a chain in which a small one relieves a larger one, which then goes.

Only the first step of a chain is ever advised, the one that is safe now. The rest needs no memory: once that server is
online where it went, the next one is a safe donor. While it loads, the same search finds the shorter rest of the chain, sees
that it waits for somebody, and advises nothing for these holes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from swarm.placement.decisions import Move, Promise
from swarm.placement.holders import Holder, counts, holes_of, moved, planned, safe_donors
from swarm.placement.repair import direct_moves
from swarm.placement.words import without_server
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span, runs

LONGEST = 4
"""Each link is a reload of minutes; a longer chain takes as long as an arrival takes to come by."""
BREADTH = 6
"""Links tried at each depth, those that leave the fewest blocks bare first."""


@dataclass(frozen=True, slots=True)
class _Link:
    holder: Holder
    target: Span


def mend(
    model: Model,
    promises: Iterable[Promise] = (),
    *,
    movable: Collection[str] | None = None,
    capacities: Mapping[str, int] | None = None,
) -> tuple[Move, ...]:
    """The moves for the holes: direct ones, and the first step of a chain where that closes more than direct moves could."""
    kept = list(promises)
    promised = frozenset(promise.peer_id for promise in kept)
    return moves_for_holes(model, planned(model, kept), promised, movable, capacities or {})


def moves_for_holes(
    model: Model,
    holders: list[Holder],
    promised: Collection[str],
    movable: Collection[str] | None,
    capacities: Mapping[str, int],
) -> tuple[Move, ...]:
    """For everybody who asks while nothing changes the same, and found once: `capacities` that say what spans say as well make
    no difference."""
    spans = {holder.peer_id: len(holder.span) for holder in holders}
    told = frozenset((peer_id, size) for peer_id, size in capacities.items() if spans.get(peer_id, size) != size)
    asked = None if movable is None else frozenset(movable)
    # The servers of the model stand in `holders`, as they are counted on.
    return _moves_for_holes(replace(model, servers=()), tuple(holders), frozenset(promised), asked, told)


@lru_cache(maxsize=64)
def _moves_for_holes(
    model: Model,
    kept: tuple[Holder, ...],
    promised: frozenset[str],
    movable: frozenset[str] | None,
    told: frozenset[tuple[str, int]],
) -> tuple[Move, ...]:
    capacities, holders = dict(told), list(kept)
    moves, after = direct_moves(model, holders, promised, movable, capacities)
    left = holes_of(model, after)
    if not left:
        return moves
    search = _Search(model, holders, promised, movable, capacities)
    for chain in search.chains():
        reached = holders
        for link in chain:
            reached = moved(reached, link.holder.peer_id, link.target)
        taken = {*promised, *(link.holder.peer_id for link in chain)}
        beside, rest = direct_moves(model, reached, taken, movable, capacities)
        if len(holes_of(model, rest)) < len(left):
            step = (_as_move(chain, search.holes),) if chain[-1].holder.peer_id in search.safe else ()
            return (*step, *beside)
    return moves


def _as_move(chain: tuple[_Link, ...], holes: Collection[int]) -> Move:
    link = chain[-1]
    filled = [block for block in chain[0].target if block in holes]
    why = f"{without_server(filled)}; once this server is on {link.target.in_words()}, a larger one can leave for them"
    return Move(link.holder.peer_id, link.holder.span, link.target, (), ReasonCode.CHAIN, why)


class _Search:
    """Depth-first, in the plan: who could go, and who could relieve it, as if every promise were already kept."""

    def __init__(
        self,
        model: Model,
        holders: list[Holder],
        promised: Collection[str],
        movable: Collection[str] | None,
        capacities: Mapping[str, int],
    ) -> None:
        self.safe = {donor.peer_id for donor in safe_donors(model, holders, promised, movable)}
        self.holes = holes_of(model, holders)
        self._num_blocks = model.num_blocks
        self._held = counts(model.num_blocks, holders)
        self._capacities = capacities
        self._free = [
            holder
            for holder in holders
            if holder.online and holder.peer_id not in promised and (movable is None or holder.peer_id in movable)
        ]

    def chains(self) -> Iterator[tuple[_Link, ...]]:
        """The shortest first; for each length one for all holes at once, and one for each run of them, the longest first."""
        every = Span(min(self.holes), max(self.holes) + 1)
        goals = sorted({every, *runs(self.holes)}, key=lambda goal: (-len(goal), goal))
        for length in range(1, LONGEST + 1):
            for goal in goals:
                if chain := self._find(goal, length):
                    yield chain

    def _find(self, goal: Span, length: int, used: tuple[_Link, ...] = ()) -> tuple[_Link, ...]:
        """A chain of exactly `length` links whose first covers the goal; empty where there is none.

        One that waits for somebody comes before one that could start now: it is a chain already under way."""
        links = [_Link(h, self._target(h, goal)) for h in self._free if self._fits(h, goal, used)]
        bare = {link.holder.peer_id: self._bare(link, used) for link in links}
        links.sort(key=lambda link: (len(bare[link.holder.peer_id]), link.holder.peer_id))
        if length == 1:
            ready = [link for link in links if not bare[link.holder.peer_id]]
            waiting = [link for link in ready if link.holder.peer_id not in self.safe]
            return tuple((waiting or ready)[:1])
        for link in links[:BREADTH]:
            left = bare[link.holder.peer_id]
            rest = self._find(Span(min(left), max(left) + 1), length - 1, (*used, link)) if left else ()
            if rest:
                return (link, *rest)
        return ()

    def _fits(self, holder: Holder, goal: Span, used: tuple[_Link, ...]) -> bool:
        return self._size(holder) >= len(goal) and all(holder is not link.holder for link in used)

    def _size(self, holder: Holder) -> int:
        return min(self._capacities.get(holder.peer_id, len(holder.span)), self._num_blocks)

    def _target(self, holder: Holder, goal: Span) -> Span:
        """The window over the goal whose blocks have the fewest holders."""
        size = self._size(holder)
        starts = range(max(0, goal.end - size), min(self._num_blocks - size, goal.start) + 1)
        return min((Span(at, at + size) for at in starts), key=lambda span: (sum(self._held[b] for b in span), span.start))

    def _bare(self, link: _Link, used: tuple[_Link, ...]) -> tuple[int, ...]:
        """Blocks of the link's holder that nobody else would hold; to hold them again after the move is not enough."""
        return tuple(
            block
            for block in link.holder.span
            if self._held[block] - 1 + sum((block in one.target) - (block in one.holder.span) for one in used) <= 0
        )
