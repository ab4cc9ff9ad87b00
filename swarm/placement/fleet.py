"""Several models in one swarm: which of them an arriving server helps most, and who should change to another model. Knows
demand and gain, not what a model is for.

To change the model costs a download, and takes a server from people who use the other one. So it is planned for holes only,
and only for those that the model's own servers cannot fill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from swarm.placement.arrivals import choose_span
from swarm.placement.chains import mend
from swarm.placement.decisions import Circumstances, Placement, Promise
from swarm.placement.holders import Holder, counts, find_holes, planned, safe_donors, without
from swarm.placement.objective import Ground, softness, survey, worth
from swarm.placement.words import has, without_server
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span

HOLE_GAIN = 1.0
"""A model that does not run gains all that it can give when it does; shared among the reloads that are still missing."""
THROUGHPUT_COUNTS = 0.2
"""How sure a model is to run comes before how fast it does."""
TRANSFER_PRICE = 0.05
"""In the same unit, times demand. A download of a span's weights takes ten times as long as a reload from disk."""
ON_DISK_SPARES = 0.9 * TRANSFER_PRICE
"""What a span is worth besides to a server that need not download it, times demand as well."""
MOST_TRANSFERS = 3
"""Planned at once: the next round sees what came of them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One model, how much it is asked for relative to others, and how many blocks of it would fit the arriving server, which
    need not download the spans `on_disk`."""

    model: Model
    weight: float
    num_blocks: int
    promises: tuple[Promise, ...] = ()
    known: Circumstances | None = None
    on_disk: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    prefix: str
    placement: Placement
    worth: float


def choose_model(demands: Iterable[Demand], rates: Mapping[str, float] | None = None) -> tuple[Choice, ...]:
    """All models with their best placement, the one to serve first: demand times marginal gain and what is spared of a
    download, ties in the order given, which is the server's own.

    `rates` is what the server would give for each prefix, where that is known.
    """
    believed = rates or {}
    choices = [_choice(demand, believed.get(demand.model.prefix)) for demand in demands if demand.num_blocks > 0]
    return tuple(sorted(choices, key=lambda choice: -choice.worth))


@dataclass(frozen=True, slots=True)
class Transfer:
    """`peer_id` leaves `origin` of the model `source` for `placement` in the model `target`. `worth` is what both models gain
    and lose by it, and what is spared of a download, each times its demand."""

    peer_id: str
    source: str
    origin: Span
    target: str
    placement: Placement
    worth: float


Fits = Callable[[str, str], int]
"""How many blocks of a model a peer could hold: peer id and prefix; 0 where it could not serve that model, or does not say."""
Disks = Callable[[str, str], tuple[Span, ...]]
"""What a peer need not download of a model: peer id and prefix. For spans of any length those that end with one count too
(`swarm.wire.spans.suffixes`)."""


def transfers(
    demands: Sequence[Demand], fits: Fits, movable: Collection[str] | None = None, disks: Disks = lambda _, __: ()
) -> tuple[Transfer, ...]:
    """Moves between models, the one that is worth most first, each judged after those before it; none that is worth nothing.

    Nobody leaves a block that has no other server online, nor without need: a model whose own servers can fill its holes
    is theirs to mend. `demands`' `num_blocks` and `on_disk` say nothing here.
    """
    now = {demand.model.prefix: demand for demand in demands}
    found: list[Transfer] = []
    while len(found) < MOST_TRANSFERS:
        options = [
            option
            for target in now.values()
            if _needs_others(target, movable)
            for source in now.values()
            if source is not target and not find_holes(source.model, source.promises)
            for option in _options(source, target, fits, movable, disks)
        ]
        best = min(options, key=lambda option: (-option.worth, option.target, option.peer_id), default=None)
        if best is None or best.worth <= TRANSFER_PRICE:
            break
        found.append(best)
        source, target = now[best.source], now[best.target]
        now[best.source] = replace(source, model=without(source.model, best.peer_id))
        now[best.target] = replace(target, promises=(*target.promises, Promise(best.peer_id, best.placement.span)))
    return tuple(found)


def objection(source: Demand, target: Demand, peer_id: str, origin: Span, span: Span) -> str | None:
    """Why a transfer decided a moment ago should not be made any more; None where it still should.

    Both models count: the one that is left must keep another server online on each block, now that it is looked at again, and
    have no hole itself; the other one must still lack blocks of `span`, and have them. Promises of `peer_id` itself are passed
    over.
    """
    if span.end > target.model.num_blocks:
        return f"{target.model.prefix} has blocks 0 to {target.model.num_blocks - 1} by now"
    kept = [promise for promise in source.promises if promise.peer_id != peer_id]
    there = [promise for promise in target.promises if promise.peer_id != peer_id]
    left = without(source.model, peer_id)
    staying = counts(left.num_blocks, planned(left, kept), online_only=True)
    bare = [block for block in origin if block < left.num_blocks and staying[block] == 0]
    if bare:
        return f"without this server {without_server(bare)} of {source.model.prefix}"
    lost = [block for hole in find_holes(left, kept) for block in hole]
    if lost:
        return f"{without_server(lost)} of {source.model.prefix}, which this server serves"
    holes = {block for hole in find_holes(without(target.model, peer_id), there) for block in hole}
    if not any(block in span for block in holes):
        return f"{span.in_words()} of {target.model.prefix} {has(span)} been given a server meanwhile"
    return None


def why_chosen(choices: Sequence[Choice]) -> str:
    """Why an arriving server is to serve the first of these models, best first."""
    first, *others = choices
    words = f"{first.prefix}: {first.placement.reason}"
    if not others:
        return words
    than = others[0].prefix if len(others) == 1 else f"the {len(others)} others that this server offers"
    if others[0].worth == first.worth:
        return f"{words}; it gains no less by this server than {than}, and stands first in its list"
    return f"{words}; it gains more by this server than {than}"


def why_transferred(transfer: Transfer) -> str:
    return (
        f"{transfer.target}: {transfer.placement.reason}, and its own servers cannot fill that; "
        f"each block that this server leaves in {transfer.source} keeps another server online"
    )


def _needs_others(demand: Demand, movable: Collection[str] | None) -> bool:
    # With how many blocks its own servers would go changes nothing: who may leave at all can fill one.
    return bool(find_holes(demand.model, demand.promises)) and not mend(demand.model, demand.promises, movable=movable)


def _options(source: Demand, target: Demand, fits: Fits, movable: Collection[str] | None, disks: Disks) -> Iterator[Transfer]:
    """Every server of `source` that may leave, at its best place in `target`."""
    holders = planned(source.model, source.promises, source.known.rates if source.known else None)
    promised = {promise.peer_id for promise in source.promises}
    here = {server.peer_id for server in target.model.servers} | {promise.peer_id for promise in target.promises}
    ground = survey(source.model.num_blocks, holders, source.known)
    rows = {holder.peer_id: row for row, holder in enumerate(holders)}
    places: dict[tuple[int, tuple[Span, ...]], Choice] = {}
    for donor in safe_donors(source.model, holders, promised, movable):
        blocks = fits(donor.peer_id, target.model.prefix) if donor.peer_id not in here else 0
        if blocks <= 0:
            continue
        able = blocks, disks(donor.peer_id, target.model.prefix)
        if able not in places:
            places[able] = _choice(replace(target, num_blocks=blocks, on_disk=able[1]), None)
        choice = places[able]
        if choice.placement.reason_code is not ReasonCode.HOLE:
            continue
        loss = source.weight * gained(ground, rows[donor.peer_id])
        yield Transfer(
            donor.peer_id, source.model.prefix, donor.span, target.model.prefix, choice.placement, choice.worth - loss
        )


def _choice(demand: Demand, rate: float | None) -> Choice:
    known, disk = demand.known, demand.on_disk
    placement = choose_span(demand.model, demand.num_blocks, demand.promises, known=known, rate=rate, on_disk=disk)
    spared = ON_DISK_SPARES if any(span.covers(placement.span) for span in disk) else 0.0
    if placement.reason_code is ReasonCode.HOLE:
        holes = {block for hole in find_holes(demand.model, demand.promises) for block in hole}
        filled = sum(block in holes for block in placement.span)
        return Choice(demand.model.prefix, placement, demand.weight * (HOLE_GAIN * filled / (len(holes) or 1) + spared))
    holders = planned(demand.model, demand.promises, known.rates if known else None)
    # By span and id, as `planned` leaves them; no peer has this id.
    arriving = Holder("", placement.span, False, rate)
    together = sorted([*holders, arriving], key=lambda holder: (holder.span, holder.peer_id))
    ground = survey(demand.model.num_blocks, together, known)
    return Choice(demand.model.prefix, placement, demand.weight * (gained(ground, together.index(arriving)) + spared))


def gained(ground: Ground, row: int) -> float:
    """What one of these servers gives its model, 0 to 1.2: how much surer each block is to have a server within the hour, and
    how much of the throughput, which is a soft bottleneck, is due to it. The more servers a model has, the less.

    Not the planner's Φ: that is made to compare places within one model. Its root grows with every power of redundancy, so that
    a model with many servers would seem to gain as much as one with few.
    """
    span = slice(int(ground.starts[row]), int(ground.ends[row]))
    alone, group = ground.alone[span], int(ground.operators[row])
    # Where another one of the same operator stays, which would go down with it, it makes nothing surer.
    counts_here = np.ones(len(alone), dtype=np.bool_) if group < 0 else ground.shared[group, span] < 2
    left = np.where(counts_here, np.minimum(alone / ground.odds[row], 1.0), alone)
    surer = float((left - alone).sum()) / ground.num_blocks
    now = ground.throughput[span]
    less = softness(np.maximum(now - ground.rates[row], 0.0), ground.ideal) - softness(now, ground.ideal)
    phi = ground.phi(0.0)
    slower = worth(phi + float(less.sum()), ground.num_blocks) / worth(phi, ground.num_blocks)
    return surer + THROUGHPUT_COUNTS * max(0.0, 1.0 - slower)
