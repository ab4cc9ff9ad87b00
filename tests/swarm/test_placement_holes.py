"""Holes: the fewest reloads, pairs tried exactly, and chains where those who may leave are too small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from swarm.placement import Move, Promise, chains, find_holes, mend, plan, repair, still_useful, urgency_of
from swarm.placement.holders import Holder, planned
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.hints import ReasonCode, Urgency
from swarm.wire.spans import Span
from tests.strategies import models
from tests.swarms import model, peer_id, server


def loading(swarm: Model, move: Move) -> Model:
    return replace(swarm, servers=tuple(_at(s, move, PeerState.JOINING) for s in swarm.servers))


def loaded(swarm: Model, move: Move) -> Model:
    return replace(swarm, servers=tuple(_at(s, move, PeerState.ONLINE) for s in swarm.servers))


def _at(one: Server, move: Move, state: PeerState) -> Server:
    return replace(one, span=move.target, state=state) if one.peer_id == move.peer_id else one


# `wide` is free to leave and fills the most, but with it `x` and `y` become bound, who together would fill everything.
PAIR = model(10, server("wide", 0, 3), server("x", 0, 2), server("y", 1, 3), server("z", 3, 6))


def test_two_moves_are_weighed_together_where_the_best_single_one_bars_the_better_pair() -> None:
    first, second = repair(PAIR)
    assert {first.peer_id, second.peer_id} == {peer_id("x"), peer_id("y")}
    assert {*first.filled, *second.filled} == {6, 7, 8, 9}


# Blocks 4 and 5 have nobody. `small` could fill one of them; `big` could fill both, but alone holds block 3.
# `other` asks for no hints.
BOUND = model(6, server("big", 1, 4), server("other", 0, 3), server("small", 0, 1))
FOLLOWERS = frozenset({peer_id("big"), peer_id("small"), peer_id("free")})


def test_a_small_server_relieves_a_larger_one_that_then_fills_the_whole_hole() -> None:
    (step,) = mend(BOUND, movable=FOLLOWERS)
    assert (step.peer_id, step.target, step.filled) == (peer_id("small"), Span(3, 4), ())
    assert (step.reason_code, urgency_of(step.reason_code)) == (ReasonCode.CHAIN, Urgency.HOLE)
    assert step.reason == "blocks 4–5 have no server; once this server is on block 3, a larger one can leave for them"


def test_while_the_relief_loads_nobody_else_moves_and_then_the_larger_one_does() -> None:
    (step,) = mend(BOUND, movable=FOLLOWERS)
    assert mend(BOUND, [Promise(step.peer_id, step.target)], movable=FOLLOWERS) == ()
    assert mend(loading(BOUND, step), movable=FOLLOWERS) == ()
    (rest,) = mend(loaded(BOUND, step), movable=FOLLOWERS)
    assert (rest.peer_id, rest.reason_code) == (peer_id("big"), ReasonCode.HOLE)
    assert set(rest.filled) == {4, 5}
    assert find_holes(loaded(loaded(BOUND, step), rest)) == ()


def test_a_chain_is_left_when_its_hole_has_closed_and_kept_while_it_stands() -> None:
    (step,) = mend(BOUND, movable=FOLLOWERS)
    assert still_useful(BOUND, step.peer_id, step.target, step.origin, reason_code=step.reason_code) is None
    whole = replace(BOUND, servers=(*BOUND.servers, server("new", 4, 6)))
    assert still_useful(whole, step.peer_id, step.target, step.origin, reason_code=step.reason_code)


def test_without_the_small_server_as_a_follower_the_hole_stays_and_nobody_moves_in_vain() -> None:
    assert mend(BOUND, movable={peer_id("big")}) == ()


def test_a_hole_elsewhere_is_not_left_waiting_for_a_chain() -> None:
    swarm = model(9, *BOUND.servers, server("tail", 6, 8), server("free", 6, 7))
    first, *more = mend(swarm, movable=FOLLOWERS)
    filled = {block for move in (first, *more) for block in move.filled}
    assert first.reason_code is ReasonCode.CHAIN
    assert filled, "a free server fills what it can at once"


@given(models())
def test_no_step_of_a_mend_opens_a_hole_or_moves_a_server_twice(swarm: Model) -> None:
    moves = mend(swarm)
    movers = {move.peer_id for move in moves}
    assert len(movers) == len(moves)
    left = [s for s in swarm.servers if s.state is PeerState.ONLINE and s.peer_id not in movers]
    before = {block for s in swarm.servers if s.state is PeerState.ONLINE for block in s.span}
    assert {block for s in left for block in s.span} == before


@given(models())
def test_following_a_mend_step_by_step_comes_to_rest(swarm: Model) -> None:
    for _ in range(4 * len(swarm.servers) + 1):
        moves = mend(swarm)
        if not moves:
            return
        holes = find_holes(swarm)
        swarm = loaded(swarm, moves[0])
        assert moves[0].reason_code is ReasonCode.CHAIN or find_holes(swarm) != holes
    raise AssertionError("still moving")


@given(models())
def test_without_circumstances_a_plan_is_the_mend_of_its_holes(swarm: Model) -> None:
    assert plan(swarm) == mend(swarm)


def slow(one: Server) -> Server:
    return replace(one, slow=True)


def test_who_has_loaded_for_long_keeps_no_hole_shut_and_counts_where_others_serve() -> None:
    at_hole, beside = server("l", 4, 8, PeerState.JOINING), server("l", 0, 4, PeerState.JOINING)
    online = (server("a", 0, 4), server("b", 0, 4), server("c", 0, 4))
    assert find_holes(model(8, *online, at_hole)) == ()
    assert find_holes(model(8, *online, slow(at_hole))) == (Span(4, 8),)
    assert planned(model(8, *online, slow(beside)), ()) == planned(model(8, *online, beside), ())


def test_a_promise_that_takes_long_is_nowhere_and_its_server_is_not_asked() -> None:
    swarm = model(8, server("a", 0, 4), server("b", 0, 4), server("c", 0, 4), server("a2", 0, 4))
    late = Promise(peer_id("a"), Span(4, 8), slow=True)
    assert find_holes(swarm, [late]) == (Span(4, 8),)
    (move,) = mend(swarm, [late])
    assert move.peer_id != late.peer_id and move.filled == (4, 5, 6, 7)
    assert not mend(swarm, [late], movable={late.peer_id})
    assert not mend(model(8, *swarm.servers[:2]), [late]), "the other one has become the last on its blocks"


@given(models())
def test_a_plan_with_slow_promises_is_the_plan_without_their_servers(swarm: Model) -> None:
    ids = sorted(s.peer_id for s in swarm.servers)[:2]
    late = [Promise(name, Span(0, 1), slow=True) for name in ids]
    rest = replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id not in ids))
    assert mend(swarm, late) == mend(rest)


def test_what_is_asked_again_and_again_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of servers ask about one hole; what each says of its own size changes nothing where its span says the same."""
    planned_for: list[object] = []
    find = chains.direct_moves

    def counted(model: Model, holders: list[Holder], promised: Any, movable: Any, capacities: Any) -> Any:
        planned_for.append(capacities)
        return find(model, holders, promised, movable, capacities)

    monkeypatch.setattr(chains, "direct_moves", counted)
    names = [peer_id(name) for name in ("first", "second", "third")]
    swarm = model(7, server("first", 0, 3), server("second", 0, 3), server("third", 1, 4))
    once = mend(swarm, movable=names)
    asked = len(planned_for)
    assert [mend(swarm, movable=set(names), capacities={name: 3}) for name in names] == [once] * 3
    assert len(planned_for) == asked
    for other in (
        mend(swarm, movable=names, capacities=dict.fromkeys(names, 1)),
        mend(swarm, movable=()),
        mend(swarm, [Promise(names[0], Span(4, 7))]),
    ):
        assert other != once
