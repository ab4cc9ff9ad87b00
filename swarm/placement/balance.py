"""Moves that fill no hole: a second holder where there is one, then throughput where it is least. One best move after another.

Knows the price of a move, who may be asked, how many may reload at once, and when there is too little to move anyone for speed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from swarm.placement.decisions import Circumstances, Move, Promise
from swarm.placement.holders import Holder, moved, safe_donors
from swarm.placement.objective import EXPONENT, RISK_WEIGHT, Ground, best_windows, survey, survey_after, worth
from swarm.placement.words import few, weak
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span

MOVE_PRICE = 0.007
"""Shares of U that a move must gain. In simulated churn of 100 servers 0.01 leaves a third of the gain over Petals' rule on the
table; with 0.005 volunteers reload as often as by that rule (docs/planner.md)."""
MOVE_PRICE_OF_FEW = 0.01
"""In a small swarm: there one move shifts more, and half the price buys next to nothing for half as many reloads again."""
RELOADING_SHARE = 0.05
"""Servers that may reload at once, as a share of all."""
COOL_DOWN_S = 1800.0
MIN_AGE_S = 600.0
"""Who has come a minute ago leaves the likeliest; half of the servers that vanish early do so within this time."""
SCARCE = 2.0
"""Below this many times the model, moves for throughput cost coverage: every reload takes away blocks that nobody else has."""
AMPLE = 0.92
"""A bottleneck of this share of U is as good as a plan gets."""
FEW_SERVERS = 60
"""In swarms of fewer servers single moves get stuck; there up to three are weighed together."""
LOOK_AHEAD, LOOK_WIDTH = 3, 6
ROUND = 3
"""Moves planned at once. The next round, seconds later, knows who follows; and a plan stays a matter of milliseconds."""
RISK_PRICE = 0.25
"""Under scarcity: blocks lost within the hour, by expectation, that a move must save. A reload risks about as much."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """Who may be asked, and what counts."""

    model: Model
    known: Circumstances
    movable: Collection[str] | None
    capacities: Mapping[str, int]
    scarce: bool
    price: float
    """Of a move, in the measure of `_profit`."""
    dark: frozenset[int]
    """While there are any, only these blocks are given a second holder."""


@dataclass(frozen=True, slots=True)
class _State:
    """A point of the search: the holders after some moves, and those moves."""

    holders: list[Holder]
    promised: frozenset[str]
    ground: Ground
    phi: float
    moves: tuple[Move, ...] = field(default=())


def rebalance(
    model: Model,
    holders: list[Holder],
    promises: Sequence[Promise],
    known: Circumstances,
    *,
    movable: Collection[str] | None = None,
    capacities: Mapping[str, int] | None = None,
    dark: frozenset[int] = frozenset(),
) -> tuple[Move, ...]:
    """The moves to ask for now, each worth its price, no more than may reload at once.

    `dark` are blocks with servers on their way and none online yet: until they work, nobody moves but to become their second.
    """
    reloading = sum(not promise.slow for promise in promises) if known.reloading is None else known.reloading
    room = min(ROUND, max(1, int(RELOADING_SHARE * len(holders))) - reloading)
    if room <= 0 or not holders:
        return ()
    ground = survey(model.num_blocks, holders, known)
    scarce = ground.capacity < SCARCE
    if ground.is_rich:
        return ()
    price = RISK_PRICE if scarce else MOVE_PRICE_OF_FEW if len(holders) < FEW_SERVERS else MOVE_PRICE
    rules = _Rules(model, known, movable, capacities or {}, scarce, price, dark)
    state = _State(holders, frozenset(promise.peer_id for promise in promises), ground, _phi(ground, scarce))
    lonely = int(ground.apart.min()) < 2
    if not scarce and not lonely and ground.bottleneck() >= AMPLE:
        return ()
    if len(holders) >= FEW_SERVERS:
        return _several(rules, state, room).moves
    while len(state.moves) < room:
        after = _step(rules, state)
        if after is None:
            break
        state = after
    return state.moves


def _several(rules: _Rules, state: _State, room: int) -> _State:
    """In a large swarm the best moves of one look rarely touch: each is judged again after those before it."""
    for option in sorted(_options(rules, state, LOOK_WIDTH, paying=True), key=lambda option: -_profit(rules, state, option)):
        move = option.moves[-1]
        after = option if not state.moves else _after(rules, state, move.peer_id, move.target)
        if after is not None and _profit(rules, state, after) >= 0.0:
            state = after
        if len(state.moves) == room:
            break
    return state


def capacity_of(model: Model, holders: Sequence[Holder]) -> float:
    """Blocks held, in multiples of the model."""
    return sum(len(holder.span) for holder in holders) / model.num_blocks


def _step(rules: _Rules, state: _State) -> _State | None:
    """The state after the next move that is worth its price, alone or with those that follow it."""
    options = _options(rules, state, LOOK_WIDTH)
    best = max(options, key=lambda after: _profit(rules, state, after), default=None)
    if best is not None and _profit(rules, state, best) >= 0.0:
        return best
    if rules.scarce:
        return None
    paths = [path for option in options if (path := _follow(rules, state, option)) is not None]
    return max(paths, key=lambda path: path[0])[1] if paths else None


def _follow(rules: _Rules, start: _State, first: _State) -> tuple[float, _State] | None:
    """What `first` is worth after its price with up to two more moves behind it; None where that is nothing."""
    state, best = first, 0.0
    for _ in range(1, LOOK_AHEAD):
        following = _options(rules, state, 1)
        if not following:
            break
        state = following[0]
        best = max(best, _profit(rules, start, state))
    return (best, first) if best > 0.0 else None


def _profit(rules: _Rules, before: _State, after: _State) -> float:
    """In shares of U; under scarcity in blocks that are expected not to be lost."""
    blocks = rules.model.num_blocks
    gain = before.phi - after.phi if rules.scarce else worth(after.phi, blocks) - worth(before.phi, blocks)
    return gain - (len(after.moves) - len(before.moves)) * rules.price


def _phi(ground: Ground, scarce: bool) -> float:
    return ground.phi(1.0, soft=False) if scarce else ground.phi()


def _options(rules: _Rules, state: _State, width: int, *, paying: bool = False) -> list[_State]:
    """The best moves from here, each by another server, best first. Each lowers Φ, or is even worth its price."""
    candidates = _candidates(rules, state, 2 * width, least=_worthwhile(rules, state) if paying else 1e-9 * state.phi)
    steps = (_after(rules, state, donor.peer_id, target) for donor, target in candidates)
    return list(islice((after for after in steps if after is not None), width))


def _worthwhile(rules: _Rules, state: _State) -> float:
    """By how much Φ must fall for a move to be worth its price; a little less, since floats differ in the last digits."""
    if rules.scarce:
        return rules.price * (1 - 1e-6)
    blocks = rules.model.num_blocks
    return (state.phi - blocks * (worth(state.phi, blocks) + rules.price) ** -EXPONENT) * (1 - 1e-6)


def _candidates(rules: _Rules, state: _State, width: int, *, least: float) -> list[tuple[Holder, Span]]:
    """Donors and their best windows, the largest fall of Φ first, each of at least `least`."""
    donors = [h for h in safe_donors(rules.model, state.holders, state.promised, rules.movable) if _rested(rules.known, h)]
    if not donors:
        return []
    places = {holder.peer_id: place for place, holder in enumerate(state.ground.holders)}
    movers = np.array([places[donor.peer_id] for donor in donors], dtype=np.int64)
    most = rules.model.num_blocks
    sizes = np.array([min(rules.capacities.get(d.peer_id, len(d.span)), most) for d in donors], dtype=np.int64)
    weight = 1.0 if rules.scarce else RISK_WEIGHT
    lowest, starts = best_windows(state.ground, movers, sizes, weight=weight, soft=not rules.scarce)
    rows = [row for row in np.argsort(lowest, kind="stable")[:width] if lowest[row] < -least]
    return [(donors[row], Span(int(starts[row]), int(starts[row] + sizes[row]))) for row in rows]


def _after(rules: _Rules, state: _State, peer_id: str, target: Span) -> _State | None:
    """None where the move would lower the bottleneck and is not for redundancy, or where one before made it unsafe."""
    donor = next(holder for holder in state.holders if holder.peer_id == peer_id)
    left = state.ground.online[donor.span.start : donor.span.end]
    if target == donor.span or peer_id in state.promised or not donor.online or left.min() < 2:
        return None
    holders = moved(state.holders, peer_id, target)
    ground = survey_after(state.ground, holders, peer_id)
    phi, blocks = _phi(ground, rules.scarce), ground.num_blocks
    gain = None if rules.scarce else worth(phi, blocks) - worth(state.phi, blocks)
    apart, held = state.ground.apart, state.ground.held
    lonely = [block for block in target if block not in donor.span and apart[block] == 1]
    if rules.dark and not rules.dark.intersection(lonely):
        return None
    if lonely and (rules.scarce or ground.alone.sum() < state.ground.alone.sum()):
        why = few(lonely, [held[block] for block in lonely], 1)
        move = Move(donor.peer_id, donor.span, target, (), ReasonCode.REDUNDANCY, why, gain)
    elif rules.scarce or rules.dark or ground.bottleneck() < state.ground.bottleneck() * (1 - 1e-9):
        return None
    else:
        move = Move(donor.peer_id, donor.span, target, (), ReasonCode.BALANCE, _weakest(state.ground, target), gain)
    return _State(holders, state.promised | {peer_id}, ground, phi, (*state.moves, move))


def _weakest(ground: Ground, target: Span) -> str:
    least = float(ground.throughput[target.start : target.end].min())
    blocks = [block for block in target if ground.throughput[block] <= least * (1 + 1e-9)]
    return weak(blocks, least / ground.ideal)


def _rested(known: Circumstances, holder: Holder) -> bool:
    """Neither new nor moved a short while ago. What is not known is no obstacle: the coordinator lists its own moves."""
    age, since_move = known.ages_s.get(holder.peer_id), known.moved_s_ago.get(holder.peer_id)
    return (age is None or age >= MIN_AGE_S) and (since_move is None or since_move >= COOL_DOWN_S)
