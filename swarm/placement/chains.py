"""Holes that no server may leave for at once: a chain in which one server relieves another, which then can go.

Only the first step of a chain is ever advised, the one that is safe now. The rest needs no memory: once that server is
online where it went, the next one is a safe donor. While it loads, the same search finds the shorter rest of the chain, sees
that it waits for somebody, and advises nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from swarm.placement.decisions import Move, Promise
from swarm.placement.holders import Holder, counts, holes_of, planned, safe_donors
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
    """The moves for the holes: direct ones, and the first step of a chain where holes are left that no safe donor can fill."""
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
    moves, after = direct_moves(model, holders, promised, movable, capacities)
    step = _first_step(model, after, {*promised, *(move.peer_id for move in moves)}, movable, capacities)
    return moves if step is None else (*moves, step)


def _first_step(
    model: Model,
    holders: list[Holder],
    promised: Collection[str],
    movable: Collection[str] | None,
    capacities: Mapping[str, int],
) -> Move | None:
    holes = holes_of(model, holders)
    if not holes:
        return None
    search = _Search(model, holders, promised, movable, capacities)
    for length in range(1, LONGEST + 1):
        for hole in runs(holes):
            chain = search.find(hole, length, whole=False)
            if chain is not None:
                return _as_move(chain, holes) if chain[-1].holder.peer_id in search.safe else None
    return None


def _as_move(chain: tuple[_Link, ...], holes: Collection[int]) -> Move:
    link = chain[-1]
    filled = [block for block in chain[0].target if block in holes]
    why = f"{without_server(filled)}; once this server is on {link.target.in_words()}, another one can leave for them"
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
        self._num_blocks = model.num_blocks
        self._held = counts(model.num_blocks, holders)
        self._capacities = capacities
        self._free = [
            holder
            for holder in holders
            if holder.online and holder.peer_id not in promised and (movable is None or holder.peer_id in movable)
        ]

    def find(self, goal: Span, length: int, *, whole: bool, used: tuple[_Link, ...] = ()) -> tuple[_Link, ...] | None:
        """A chain of exactly `length` links whose first covers the goal, or at least a block of it unless it must be `whole`.

        Chains that could start now come after those that wait for somebody: what waits is a chain already under way."""
        options = sorted(
            (
                (len(bare), holder.peer_id, target.start, bare, _Link(holder, target))
                for holder in self._free
                if all(holder is not link.holder for link in used)
                for target, bare in self._targets(holder, goal, whole, used)
            ),
            key=lambda option: option[:3],
        )
        if length == 1:
            ready = [link for cost, *_, link in options if cost == 0]
            waiting = [link for link in ready if link.holder.peer_id not in self.safe]
            return tuple((waiting or ready)[:1]) or None
        for _, _, _, bare, link in options[:BREADTH]:
            if not bare:
                continue
            rest = self.find(Span(min(bare), max(bare) + 1), length - 1, whole=True, used=(*used, link))
            if rest is not None:
                return (link, *rest)
        return None

    def _targets(
        self, holder: Holder, goal: Span, whole: bool, used: tuple[_Link, ...]
    ) -> Iterable[tuple[Span, tuple[int, ...]]]:
        """The window that reaches the goal and leaves the fewest blocks bare."""
        size = min(self._capacities.get(holder.peer_id, len(holder.span)), self._num_blocks)
        if whole and size < len(goal):
            return
        low, high = (goal.end - size, goal.start) if whole else (goal.start - size + 1, goal.end - 1)
        if not whole and size >= len(goal):
            low, high = goal.end - size, goal.start
        starts = range(max(0, low), min(self._num_blocks - size, high) + 1)
        windows = [Span(start, start + size) for start in starts]
        if windows:
            target = min(windows, key=lambda window: (len(self._bare(holder, window, used)), window.start))
            yield target, self._bare(holder, target, used)

    def _bare(self, holder: Holder, target: Span, used: tuple[_Link, ...]) -> tuple[int, ...]:
        """Blocks that nobody would hold once the holder and those before it had moved."""
        return tuple(
            block
            for block in holder.span
            if block not in target
            and self._held[block] - 1 + sum((block in link.target) - (block in link.holder.span) for link in used) <= 0
        )
