"""The whole plan for one model, and what it means for one server: holes, then redundancy, then throughput."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from swarm.placement.arrivals import Pace, choose_span
from swarm.placement.balance import COOL_DOWN_S, SCARCE, capacity_of, rebalance
from swarm.placement.chains import moves_for_holes
from swarm.placement.decisions import Advice, Circumstances, Move, Promise
from swarm.placement.holders import counts, dark_blocks, find_holes, holes_of, moved, planned, safe_donors, without
from swarm.placement.objective import survey
from swarm.placement.words import has, loading, nothing_known, without_server
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span


def plan(
    model: Model,
    promises: Iterable[Promise] = (),
    *,
    movable: Collection[str] | None = None,
    capacities: Mapping[str, int] | None = None,
    known: Circumstances | None = None,
) -> tuple[Move, ...]:
    """The moves to ask for now. Without `known` only holes are repaired.

    Until every block has a server online, nobody is moved for others than these: a promise fills the hole in the plan, not yet
    in the swarm. A second server is sent, since it is needed next anyway, and whichever loads faster ends the outage.
    """
    kept = list(promises)
    holders = planned(model, kept, known.rates if known else None)
    promised = frozenset(promise.peer_id for promise in kept)
    moves = moves_for_holes(model, holders, promised, movable, capacities or {})
    dark = dark_blocks(model, holders)
    if moves or known is None or holes_of(model, holders):
        return moves
    return rebalance(model, holders, kept, known, movable=movable, capacities=capacities, dark=dark)


def advise(
    model: Model,
    peer_id: str,
    num_blocks: int,
    *,
    serving: Span | None,
    promises: Iterable[Promise] = (),
    movable: Collection[str] | None = None,
    capacities: Mapping[str, int] | None = None,
    known: Circumstances | None = None,
    pace: Pace | None = None,
) -> Advice:
    """What `peer_id`, which can hold `num_blocks` blocks and serves `serving`, should do now.

    `movable` are the peers that are known to follow hints (None: all); the others are fixed points of the plan.
    """
    others = tuple(promise for promise in promises if promise.peer_id != peer_id)
    if serving is None:
        disk = known.on_disk.get(peer_id, ()) if known else ()
        rate = known.rates.get(peer_id) if known else None
        placement = choose_span(without(model, peer_id), num_blocks, others, known=known, rate=rate, pace=pace, on_disk=disk)
        return Advice(placement.reason_code, placement.reason, placement)
    followers = None if movable is None else {*movable, peer_id}
    sizes = {**(capacities or {}), peer_id: num_blocks}
    moves = plan(model, others, movable=followers, capacities=sizes, known=known)
    own = next((move for move in moves if move.peer_id == peer_id), None)
    if own is not None:
        return Advice(own.reason_code, own.reason, own.placement)
    return _stay(model, peer_id, others, moves, known)


def _stay(
    model: Model, peer_id: str, promises: tuple[Promise, ...], moves: tuple[Move, ...], known: Circumstances | None
) -> Advice:
    holes = [block for hole in find_holes(model, promises) for block in hole]
    if holes and moves:
        return Advice(ReasonCode.OTHER_SERVER_MOVES, f"{without_server(holes)}; another server is the better one to move")
    if holes:
        why = "but no server can leave its blocks without opening a hole"
        return Advice(ReasonCode.NO_SAFE_MOVE, f"{without_server(holes)}, {why}")
    if moves:
        return Advice(ReasonCode.OTHER_SERVER_MOVES, f"{moves[0].reason}; another server is the better one to move")
    dark = dark_blocks(model, planned(model, promises))
    if dark:
        return Advice(ReasonCode.BEING_REPAIRED, f"{loading(dark)}; until it serves, nobody is moved for anything else")
    whole = _whole(model, promises)
    if known is None:
        return Advice(ReasonCode.NOTHING_NEEDED, whole)
    if known.moved_s_ago.get(peer_id, COOL_DOWN_S) < COOL_DOWN_S:
        return Advice(ReasonCode.TOO_SOON, f"{whole}; this server has moved less than {COOL_DOWN_S / 60:.0f} minutes ago")
    capacity = capacity_of(model, planned(model, promises))
    if capacity < SCARCE:
        words = f"the servers hold {capacity:.1f} times the model, too little to move one for throughput"
        return Advice(ReasonCode.SCARCE, f"{whole}; {words}")
    return Advice(ReasonCode.NOTHING_NEEDED, f"{whole}, and no move is worth its reload")


def _whole(model: Model, promises: tuple[Promise, ...]) -> str:
    """That nothing is known to be missing, and what is not known."""
    held = counts(model.num_blocks, planned(model, promises))
    dark = [block for block in sorted(model.unread_blocks) if block < model.num_blocks and held[block] == 0]
    which = "every other block" if dark else "every block that was seen" if model.at_least else "every block"
    said = f"{which} has a server"
    return f"{nothing_known(dark)}; {said}" if dark else said


def still_useful(
    model: Model,
    peer_id: str,
    target: Span,
    origin: Span | None,
    promises: Iterable[Promise] = (),
    *,
    reason_code: ReasonCode = ReasonCode.HOLE,
    known: Circumstances | None = None,
) -> str | None:
    """Why a move decided a moment ago should not be made any more; None where it still should.

    A move away from blocks must leave every one of them to another server online, and must still do what it was meant
    for: give a hole a server, or lower Φ. An arrival is always welcome, where the model still has the blocks.
    """
    if target.end > model.num_blocks:
        return f"the model has blocks 0 to {model.num_blocks - 1} by now"
    if origin is None:
        return None
    kept = [promise for promise in promises if promise.peer_id != peer_id]
    others = without(model, peer_id)
    lost = _left_bare(others, origin, kept)
    if lost:
        bare = [block for block in lost if block not in others.unread_blocks]
        return (
            f"without this server {without_server(bare)}" if bare else f"{nothing_known(lost)}; this server may be their last"
        )
    holes = [block for hole in find_holes(others, kept) for block in hole]
    if reason_code in (ReasonCode.REDUNDANCY, ReasonCode.BALANCE):
        if holes and not any(block in target for block in holes):
            return f"{without_server(holes)} meanwhile, which comes first"
        dark = dark_blocks(others, planned(others, kept)) - set(holes)
        if dark and not any(block in target for block in dark):
            return f"{loading(dark)}; until it serves, nobody moves for less"
        return None if _gains(model, peer_id, target, kept, known) else "the move would gain nothing"
    if reason_code is ReasonCode.CHAIN:
        return None if holes else "every block has been given a server meanwhile"
    if not any(block in target for block in holes):
        return f"{target.in_words()} {has(target)} been given a server meanwhile"
    return None


def _left_bare(others: Model, origin: Span, promises: list[Promise]) -> list[int]:
    """Blocks of `origin` that no server online, and staying there, holds besides."""
    leaving = {promise.peer_id for promise in promises}
    staying = [holder for holder in planned(others, promises) if holder.peer_id not in leaving]
    online = counts(others.num_blocks, staying, online_only=True)
    return [block for block in origin if block < others.num_blocks and online[block] == 0]


def _gains(model: Model, peer_id: str, target: Span, promises: list[Promise], known: Circumstances | None) -> bool:
    holders = planned(model, promises, known.rates if known else None)
    if peer_id not in {donor.peer_id for donor in safe_donors(model, holders, (), {peer_id})}:
        return False
    before = survey(model.num_blocks, holders, known)
    after = survey(model.num_blocks, moved(holders, peer_id, target), known)
    scarce = before.capacity < SCARCE
    if scarce:
        return after.phi(1.0, soft=False) < before.phi(1.0, soft=False)
    return after.phi() < before.phi()
