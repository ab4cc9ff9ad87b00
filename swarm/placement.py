"""THE PLANNER: where should a server serve? Pure, deterministic, and every decision carries its reason.

One planner, two callers: the coordinator calls it on the stored snapshot with the open leases as promises, a block server on
its own view of the DHT without any when the coordinator does not answer. On the same snapshot without promises both come to
the same answer.

Rule 1: a hole is a block that nobody serves, loads or has promised to serve. A block that could not be read is no hole.
Rule 2: nobody leaves a block that has no other server online, not even while the replacement loads.
Rule 3: the answer does not depend on the order of records: ties are settled by span, then by peer id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from swarm.snapshot import Model, PeerState
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span, in_words, runs

_SERVING = (PeerState.ONLINE, PeerState.JOINING)
"""A joining server counts as a public reservation, as in Petals; otherwise a slow load draws a herd."""


@dataclass(frozen=True, slots=True)
class Promise:
    """An open lease: `peer_id` has been asked to serve `span` and is not yet seen there."""

    peer_id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to serve, and why."""

    span: Span
    reason_code: ReasonCode
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """`peer_id` leaves `origin` for `target`, which gives the `filled` blocks a server."""

    peer_id: str
    origin: Span
    target: Span
    filled: tuple[int, ...]

    @property
    def reason(self) -> str:
        return _without_server(self.filled)


@dataclass(frozen=True, slots=True)
class Advice:
    """To one server: `placement` where it should serve other blocks than now, else None; the reason is there in both cases."""

    reason_code: ReasonCode
    reason: str
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class _Holder:
    """`throughput` in tokens per second, None where not known."""

    peer_id: str
    span: Span
    online: bool
    throughput: float | None


def advise(
    model: Model,
    peer_id: str,
    num_blocks: int,
    *,
    serving: Span | None,
    promises: Iterable[Promise] = (),
    movable: Collection[str] | None = None,
) -> Advice:
    """What `peer_id`, which can hold `num_blocks` blocks and serves `serving`, should do now.

    `movable` are the peers that are known to follow hints (None: all); the others are fixed points of the plan.
    """
    others = tuple(promise for promise in promises if promise.peer_id != peer_id)
    if serving is None:
        placement = choose_span(without(model, peer_id), num_blocks, others)
        return Advice(placement.reason_code, placement.reason, placement)
    followers = None if movable is None else {*movable, peer_id}
    moves = repair(model, others, movable=followers, capacities={peer_id: num_blocks})
    for move in moves:
        if move.peer_id == peer_id:
            placement = Placement(move.target, ReasonCode.HOLE, move.reason)
            return Advice(placement.reason_code, placement.reason, placement)
    holes = find_holes(model, others)
    if not holes:
        return Advice(ReasonCode.NOTHING_NEEDED, "every block has a server or one on its way")
    if moves:
        return Advice(
            ReasonCode.OTHER_SERVER_MOVES, f"{_without_server(_blocks(holes))}; another server is the better one to move"
        )
    return Advice(
        ReasonCode.NO_SAFE_MOVE, f"{_without_server(_blocks(holes))}, but no server can leave its blocks without opening a hole"
    )


def choose_span(model: Model, num_blocks: int, promises: Iterable[Promise] = ()) -> Placement:
    """Where an arriving server helps most: the window whose blocks, weakest first, are the weakest of all windows.

    Petals' rule compares the sorted throughputs of the windows; here the number of servers comes before throughput, so that
    a server with unknown throughput counts as a server. Holes win over everything, the more the better.
    """
    holders = _plan(model, promises)
    strengths = _strengths(model, holders)
    size = min(num_blocks, model.num_blocks)
    windows = [Span(start, start + size) for start in range(model.num_blocks - size + 1)]
    best = min(windows, key=lambda window: (sorted(strengths[block] for block in window), window.start))
    holes = [block for block in best if strengths[block][0] == 0]
    if holes:
        return Placement(best, ReasonCode.HOLE, _without_server(holes))
    weakest = min(strengths[block][0] for block in best)
    thin = runs(block for block in best if strengths[block][0] == weakest)
    has = "has" if len(thin) == 1 and len(thin[0]) == 1 else "have"
    count = "only one server" if weakest == 1 else f"{weakest} servers, the fewest of all"
    return Placement(best, ReasonCode.THINNEST, f"{in_words(thin)} {has} {count}")


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
    moves: list[Move] = []
    while True:
        move = _best_move(model, kept, movable, capacities or {})
        if move is None:
            return tuple(moves)
        moves.append(move)
        kept.append(Promise(move.peer_id, move.target))


def find_holes(model: Model, promises: Iterable[Promise] = ()) -> tuple[Span, ...]:
    """Blocks that nobody serves, loads or has promised to serve."""
    strengths = _strengths(model, _plan(model, promises))
    return runs(block for block in range(model.num_blocks) if strengths[block][0] == 0 and block not in model.unread_blocks)


def still_useful(model: Model, peer_id: str, target: Span, origin: Span | None, promises: Iterable[Promise] = ()) -> str | None:
    """Why a move decided a moment ago should not be made any more; None where it still should.

    A move away from blocks must still give a hole a server, and must still leave every block that it leaves to another
    server online. An arrival is always welcome.
    """
    if origin is None:
        return None
    kept = [promise for promise in promises if promise.peer_id != peer_id]
    others = without(model, peer_id)
    holes = _blocks(find_holes(others, kept))
    leaving = {promise.peer_id for promise in kept}
    online = {
        block for holder in _plan(others, kept) if holder.online and holder.peer_id not in leaving for block in holder.span
    }
    lost = [block for block in origin if block < model.num_blocks and block not in online]
    if lost:
        return f"without this server {_without_server(lost)}"
    if not any(block in target for block in holes):
        return f"{target.in_words()} have been given a server meanwhile"
    return None


def without(model: Model, peer_id: str) -> Model:
    """The model as it would be if this server were not there."""
    return replace(model, servers=tuple(server for server in model.servers if server.peer_id != peer_id))


def _best_move(
    model: Model, promises: list[Promise], movable: Collection[str] | None, capacities: Mapping[str, int]
) -> Move | None:
    holes = frozenset(_blocks(find_holes(model, promises)))
    if not holes:
        return None
    holders = _plan(model, promises)
    promised = {promise.peer_id for promise in promises}
    ranked: list[tuple[tuple[object, ...], Move]] = []
    for donor in _safe_donors(model, holders, promised, movable):
        others = [holder for holder in holders if holder is not donor]
        strengths = _strengths(model, others)
        size = min(capacities.get(donor.peer_id, len(donor.span)), model.num_blocks)
        target = _best_window(model, strengths, size, holes)
        if target is None:
            continue
        filled = tuple(block for block in target if block in holes)
        # Left behind: the weaker the blocks that the donor leaves, the less it should be the one to go.
        weakest_left = min(strengths[block] for block in donor.span)
        rank = (-len(filled), -weakest_left[0], donor.throughput or 0.0, donor.peer_id)
        ranked.append((rank, Move(donor.peer_id, donor.span, target, filled)))
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _best_window(model: Model, strengths: list[tuple[int, float]], size: int, holes: frozenset[int]) -> Span | None:
    """The window that fills the most holes and is, beyond them, the weakest; None where no window fills any."""
    windows = [Span(start, start + size) for start in range(model.num_blocks - size + 1)]
    filling = [(sum(block in holes for block in window), window) for window in windows]
    most = max(count for count, _ in filling)
    if most == 0:
        return None
    return min(
        (window for count, window in filling if count == most),
        key=lambda window: (sorted(strengths[block] for block in window), window.start),
    )


def _safe_donors(
    model: Model, holders: list[_Holder], promised: Collection[str], movable: Collection[str] | None
) -> list[_Holder]:
    """Online servers that may leave: each of their blocks keeps another server that is online and stays."""
    staying = [0] * model.num_blocks
    for holder in holders:
        if holder.online:
            for block in holder.span:
                staying[block] += 1
    return [
        holder
        for holder in holders
        if holder.online
        and holder.peer_id not in promised
        and (movable is None or holder.peer_id in movable)
        and all(staying[block] >= 2 for block in holder.span)
    ]


def _plan(model: Model, promises: Iterable[Promise]) -> list[_Holder]:
    """Who will hold what once every promise is kept. A promised server is gone from where it is now, and not yet online."""
    moving = {promise.peer_id: promise.span for promise in promises}
    throughput = {server.peer_id: server.record.throughput for server in model.servers}
    holders = [
        _Holder(server.peer_id, span, server.state is PeerState.ONLINE, server.record.throughput)
        for server in model.servers
        if server.state in _SERVING and server.peer_id not in moving and (span := _inside(server.span, model)) is not None
    ]
    holders += [
        _Holder(peer_id, span, False, throughput.get(peer_id))
        for peer_id, promised in moving.items()
        if (span := _inside(promised, model)) is not None
    ]
    return sorted(holders, key=lambda holder: (holder.span, holder.peer_id))


def _inside(span: Span, model: Model) -> Span | None:
    end = min(span.end, model.num_blocks)
    return Span(span.start, end) if span.start < end else None


def _strengths(model: Model, holders: Iterable[_Holder]) -> list[tuple[int, float]]:
    """For each block the number of servers and the sum of their known throughputs."""
    counts = [0] * model.num_blocks
    known: list[list[float]] = [[] for _ in range(model.num_blocks)]
    for holder in holders:
        for block in holder.span:
            counts[block] += 1
            if holder.throughput is not None:
                known[block].append(holder.throughput)
    # Sorted, since a sum of floats depends on its order, and a plan must not depend on that of the records.
    return [(count, sum(sorted(rates))) for count, rates in zip(counts, known, strict=True)]


def _blocks(spans: Iterable[Span]) -> tuple[int, ...]:
    return tuple(block for span in spans for block in span)


def _without_server(blocks: Iterable[int]) -> str:
    spans = runs(blocks)
    return f"{in_words(spans)} {'has' if len(spans) == 1 and len(spans[0]) == 1 else 'have'} no server"
