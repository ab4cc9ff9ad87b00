"""Redundancy and throughput: what is moved, for whose sake, and what keeps servers where they are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.placement import Circumstances, Move, Promise, advise, balance, choose_span, plan, still_useful, urgency_of
from swarm.placement.balance import COOL_DOWN_S, MIN_AGE_S, MOVE_PRICE_OF_FEW
from swarm.placement.holders import planned
from swarm.placement.objective import survey, worth
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import ReasonCode, Urgency
from swarm.wire.spans import Span
from tests.strategies import crowds, models
from tests.swarms import model, peer_id, server

KNOWN = Circumstances()
# Four on the first half, two on the second: one of the four belongs there.
LOPSIDED = model(4, *(server(name, 0, 2) for name in "abcd"), *(server(name, 2, 4) for name in "ef"))
# Plenty on blocks 0 to 3, and one server alone on the last two.
LONELY = model(6, *(server(name, 0, 4) for name in "abcd"), server("e", 4, 6))
SCARCE = model(8, server("a", 0, 4), server("b", 0, 4), server("c", 4, 6), server("d", 4, 6), server("e", 6, 8))


def after(swarm: Model, *moves: Move) -> Model:
    targets = {move.peer_id: move.target for move in moves}
    return replace(swarm, servers=tuple(replace(s, span=targets.get(s.peer_id, s.span)) for s in swarm.servers))


def bottleneck(swarm: Model) -> float:
    return survey(swarm.num_blocks, planned(swarm, ())).bottleneck()


def test_throughput_goes_where_it_is_least_and_says_so() -> None:
    (move,) = plan(LOPSIDED, known=KNOWN)
    assert (move.origin, move.target) == (Span(0, 2), Span(2, 4))
    assert (move.reason_code, urgency_of(move.reason_code)) == (ReasonCode.BALANCE, Urgency.BALANCE)
    assert move.reason == "blocks 2–3 have 67% of the throughput that these servers could give every block"
    before, then = (survey(4, planned(swarm, ())).phi() for swarm in (LOPSIDED, after(LOPSIDED, move)))
    assert move.gain == worth(then, 4) - worth(before, 4) > MOVE_PRICE_OF_FEW
    assert plan(after(LOPSIDED, move), known=KNOWN) == ()


def test_a_second_holder_comes_before_throughput() -> None:
    (move,) = plan(LONELY, known=KNOWN)
    assert move.target.covers(Span(4, 6))
    assert (move.reason_code, urgency_of(move.reason_code)) == (ReasonCode.REDUNDANCY, Urgency.REDUNDANCY)
    assert move.reason == "blocks 4–5 have only one server"


def test_nobody_is_moved_for_these_where_nothing_is_known_of_past_moves() -> None:
    assert plan(LOPSIDED) == plan(LONELY) == ()


def test_two_servers_of_one_operator_are_one_against_loss() -> None:
    swarm = model(4, *(server(name, 0, 2) for name in "abc"), *(server(name, 2, 4) for name in "def"))
    assert plan(swarm, known=KNOWN) == ()
    house = Circumstances(operators={peer_id(name): "one house" for name in "def"})
    moves = plan(swarm, known=house)
    risk = survey(4, planned(swarm, ()), house).alone.sum()
    assert moves == () or survey(4, planned(after(swarm, *moves), ()), house).alone.sum() < risk
    assert risk > survey(4, planned(swarm, ())).alone.sum()


def test_where_there_is_too_little_only_redundancy_moves_anyone() -> None:
    advice = advise(SCARCE, peer_id("a"), 4, serving=Span(0, 4), known=KNOWN)
    # Six blocks of eight are held twice: to double the last two would leave others alone.
    assert plan(SCARCE, known=KNOWN) == ()
    assert advice.reason_code is ReasonCode.SCARCE
    assert "1.8 times the model" in advice.reason


def test_where_there_is_too_little_a_third_holder_still_doubles_a_lonely_block() -> None:
    thrice = model(10, *(server(name, 0, 4) for name in "abc"), server("d", 4, 7), server("e", 7, 10))
    (move,) = plan(thrice, known=KNOWN)
    assert (move.reason_code, move.gain) == (ReasonCode.REDUNDANCY, None)
    assert move.target.start >= 4


def test_who_has_just_moved_or_come_is_left_alone() -> None:
    for tired in (
        Circumstances(moved_s_ago={peer_id(name): COOL_DOWN_S - 1 for name in "abcd"}),
        Circumstances(ages_s={peer_id(name): MIN_AGE_S - 1 for name in "abcd"}),
    ):
        assert plan(LOPSIDED, known=tired) == ()
    rested = Circumstances(
        moved_s_ago={peer_id(name): COOL_DOWN_S for name in "abcd"}, ages_s={peer_id(n): MIN_AGE_S for n in "abcd"}
    )
    assert plan(LOPSIDED, known=rested)


def test_a_server_in_its_cool_down_is_told_so() -> None:
    even = model(4, *(server(name, 0, 2) for name in "ab"), *(server(name, 2, 4) for name in "cd"))
    known = Circumstances(moved_s_ago={peer_id("a"): 60.0})
    assert advise(even, peer_id("a"), 2, serving=Span(0, 2), known=known).reason_code is ReasonCode.TOO_SOON
    assert advise(even, peer_id("b"), 2, serving=Span(0, 2), known=known).reason_code is ReasonCode.NOTHING_NEEDED


@pytest.mark.parametrize("way", ["loading", "promised"])
def test_until_a_hole_has_a_server_online_only_a_second_one_is_sent_there(way: str) -> None:
    """The promise fills the hole in the plan, which would otherwise go on to what is thin or slow."""
    crowd = replace(KNOWN, reloading=0)
    swarm = model(6, *LOPSIDED.servers, server("x", 4, 6, PeerState.JOINING))
    promises: list[Promise] = []
    if way == "promised":
        swarm, promises = model(6, *LOPSIDED.servers, server("x", 0, 2)), [Promise(peer_id("x"), Span(4, 6))]
    (second,) = plan(swarm, promises, known=crowd)
    assert (second.target, second.reason_code) == (Span(4, 6), ReasonCode.REDUNDANCY)
    check = {"reason_code": second.reason_code, "known": crowd}
    assert still_useful(swarm, second.peer_id, second.target, second.origin, promises, **check) is None
    promises.append(Promise(second.peer_id, second.target))
    assert plan(swarm, promises, known=crowd) == ()
    advice = advise(swarm, peer_id("e"), 2, serving=Span(2, 4), promises=promises, known=crowd)
    assert advice.reason_code is ReasonCode.BEING_REPAIRED
    assert advice.reason.startswith("blocks 4–5 have no server online yet, but one on its way")
    assert plan(model(6, *LOPSIDED.servers, server("x", 4, 6)), known=KNOWN)


def test_a_balance_move_is_not_begun_while_a_hole_is_being_filled() -> None:
    (move,) = plan(LOPSIDED, known=KNOWN)
    wider = model(6, *LOPSIDED.servers, server("x", 4, 6, PeerState.JOINING))
    objection = still_useful(wider, move.peer_id, move.target, move.origin, reason_code=move.reason_code, known=KNOWN)
    assert objection == "blocks 4–5 have no server online yet, but one on its way; until it serves, nobody moves for less"


def test_blocks_that_could_not_be_read_hold_nobody_up() -> None:
    unread = model(6, *LOPSIDED.servers, unread=frozenset({4, 5}))
    assert plan(unread, known=KNOWN)


def test_a_move_that_gains_little_is_asked_for_in_a_large_swarm_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = (server(f"a{n}", 0, 2, throughput=6.0) for n in range(10))
    weak = (server(f"b{n}", 2, 4, throughput=3.6) for n in range(10))
    swarm, small = model(4, *fast, server("s", 0, 2, throughput=0.4), *weak), {peer_id("s")}
    assert plan(swarm, known=KNOWN, movable=small) == ()
    monkeypatch.setattr(balance, "FEW_SERVERS", len(swarm.servers))
    (move,) = plan(swarm, known=KNOWN, movable=small)
    assert move.gain is not None
    assert balance.MOVE_PRICE < move.gain < balance.MOVE_PRICE_OF_FEW


def test_one_server_reloads_at_a_time_in_a_small_swarm() -> None:
    wide = model(4, *(server(f"a{n}", 0, 2) for n in range(10)), *(server(f"b{n}", 2, 4) for n in range(2)))
    (move,) = plan(wide, known=KNOWN)
    assert plan(wide, [Promise(move.peer_id, move.target)], known=KNOWN) == ()
    assert plan(wide, known=Circumstances(reloading=1)) == ()


def test_servers_that_do_not_follow_are_fixed_points() -> None:
    (move,) = plan(LOPSIDED, known=KNOWN, movable={peer_id("c")})
    assert move.peer_id == peer_id("c")
    assert plan(LOPSIDED, known=KNOWN, movable=()) == ()


def test_the_one_who_is_to_move_is_told_to_and_the_others_that_it_is_another() -> None:
    (move,) = plan(LOPSIDED, known=KNOWN)
    for s in LOPSIDED.servers:
        advice = advise(LOPSIDED, s.peer_id, len(s.span), serving=s.span, known=KNOWN)
        expected = ReasonCode.BALANCE if s.peer_id == move.peer_id else ReasonCode.OTHER_SERVER_MOVES
        assert advice.reason_code is expected
        assert (advice.placement is not None) == (s.peer_id == move.peer_id)


def test_believed_rates_take_the_place_of_reported_ones() -> None:
    boaster = model(4, server("a", 0, 2), server("b", 0, 2), server("c", 0, 2), server("d", 2, 4, throughput=300.0))
    assert plan(boaster, known=KNOWN) == ()
    (move,) = plan(boaster, known=Circumstances(rates={peer_id("d"): 10.0}))
    assert (move.target, move.reason_code) == (Span(2, 4), ReasonCode.REDUNDANCY)


def test_a_balance_move_is_checked_again_before_anything_is_unloaded() -> None:
    (move,) = plan(LOPSIDED, known=KNOWN)
    check = {"reason_code": move.reason_code, "known": KNOWN}
    assert still_useful(LOPSIDED, move.peer_id, move.target, move.origin, **check) is None
    filled = replace(LOPSIDED, servers=(*LOPSIDED.servers, server("x", 2, 4), server("y", 2, 4), server("z", 2, 4)))
    assert still_useful(filled, move.peer_id, move.target, move.origin, **check) == "the move would gain nothing"
    gone = replace(LOPSIDED, servers=tuple(s for s in LOPSIDED.servers if s.span.start == 2 or s.peer_id == move.peer_id))
    assert "without this server" in (still_useful(gone, move.peer_id, move.target, move.origin, **check) or "")


# --- properties


@settings(max_examples=150)
@given(st.one_of(crowds(), models(max_servers=12)))
def test_no_plan_opens_a_hole_exceeds_a_span_or_lowers_the_bottleneck_without_a_reason(swarm: Model) -> None:
    moves = plan(swarm, known=KNOWN)
    movers = {move.peer_id for move in moves}
    assert len(movers) == len(moves)
    staying = [s for s in swarm.servers if s.state is PeerState.ONLINE and s.peer_id not in movers]
    assert {b for s in staying for b in s.span} == {b for s in swarm.servers if s.state is PeerState.ONLINE for b in s.span}
    assert all(len(move.target) == len(move.origin) and move.target.end <= swarm.num_blocks and move.reason for move in moves)
    if all(move.reason_code is ReasonCode.BALANCE for move in moves):
        assert bottleneck(after(swarm, *moves)) >= bottleneck(swarm) * (1 - 1e-6)


@settings(max_examples=60)
@given(crowds())
def test_followed_to_its_end_a_plan_comes_to_rest(swarm: Model) -> None:
    """Without cool-downs or churn: every move pays, so none is ever taken back."""
    for _ in range(40):
        moves = plan(swarm, known=KNOWN)
        if not moves:
            return
        swarm = after(swarm, *moves)
    raise AssertionError("still moving after forty rounds")


@settings(max_examples=60)
@given(crowds(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_records(swarm: Model, source: random.Random) -> None:
    shuffled = list(swarm.servers)
    source.shuffle(shuffled)
    assert plan(replace(swarm, servers=tuple(shuffled)), known=KNOWN) == plan(swarm, known=KNOWN)


@settings(max_examples=60)
@given(st.one_of(crowds(), models()))
def test_what_one_server_is_told_is_its_part_of_the_plan(swarm: Model) -> None:
    """So the coordinator's hint is the server's own decision, on the same snapshot and without promises."""
    capacities = {s.peer_id: len(s.span) for s in swarm.servers}
    moves = {move.peer_id: move for move in plan(swarm, known=KNOWN, capacities=capacities)}
    for s in swarm.servers:
        if s.state is PeerState.ONLINE:
            advice = advise(swarm, s.peer_id, len(s.span), serving=s.span, known=KNOWN, capacities=capacities)
            told = advice.placement.span if advice.placement else None
            assert told == (moves[s.peer_id].target if s.peer_id in moves else None)


def in_one_network(*names: str) -> Circumstances:
    settled = {peer_id(name): 1e6 for name in "abcdefgh"}
    return Circumstances(ages_s=settled, operators={peer_id(name): "net" for name in names})


def test_servers_of_one_network_are_one_holder_and_the_block_is_given_another() -> None:
    """Every block has two servers, and no block is slow: only the network speaks for a move."""
    small, large = server("f", 0, 2, throughput=5.0), server("e", 2, 4, throughput=15.0)
    swarm = model(4, server("a", 0, 4), server("b", 0, 2), server("c", 0, 2), small, server("d", 2, 4), large)
    assert plan(swarm, known=in_one_network()) == ()
    (move,) = plan(swarm, known=in_one_network("a", "d", "e"))
    assert (move.peer_id, move.target) == (peer_id("f"), Span(2, 4))
    assert (move.reason_code, move.reason) == (ReasonCode.REDUNDANCY, "blocks 2–3 have servers of only one network or operator")
    assert plan(after(swarm, move), known=in_one_network("a", "d", "e")) == (), "it stays put on its own result"


def test_nobody_is_moved_into_a_network_for_a_second_holder_from_the_same() -> None:
    swarm = model(4, *(server(n, 0, 2) for n in "abc"), server("d", 2, 4), server("e", 2, 4))
    assert plan(swarm, known=in_one_network("a", "b", "c", "d", "e")) == ()


def test_an_arrival_goes_where_all_servers_are_in_one_network_and_is_told_so() -> None:
    swarm = model(4, *(server(n, 0, 2) for n in "abc"), *(server(n, 2, 4) for n in "def"))
    placement = choose_span(swarm, 2, known=in_one_network("d", "e", "f"))
    assert (placement.span, placement.reason_code) == (Span(2, 4), ReasonCode.THINNEST)
    assert placement.reason == "blocks 2–3 have servers of only one network or operator"


@given(models())
def test_where_no_operator_has_two_servers_nothing_changes(swarm: Model) -> None:
    ages = {s.peer_id: 1e6 for s in swarm.servers}
    apart = {s.peer_id: f"server {s.peer_id}" for s in swarm.servers}
    assert plan(swarm, known=Circumstances(ages_s=ages)) == plan(swarm, known=Circumstances(ages_s=ages, operators=apart))
