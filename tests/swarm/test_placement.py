from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swarm.placement import Circumstances, Demand, Promise, advise, choose_span, find_holes, repair, still_useful
from swarm.placement.fleet import objection
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span
from tests.strategies import models
from tests.swarms import model, peer_id, server


def moved(before: Model, peer: str, span: Span) -> Model:
    servers = tuple(replace(s, span=span) if s.peer_id == peer else s for s in before.servers)
    return replace(before, servers=servers)


# --- arrivals


def test_four_arrivals_of_twelve_blocks_cover_thirty_and_double_up_at_the_start() -> None:
    swarm = model(30)
    for name, expected in [("a", Span(0, 12)), ("b", Span(12, 24)), ("c", Span(18, 30)), ("d", Span(0, 12))]:
        placement = choose_span(swarm, 12)
        assert placement.span == expected
        swarm = replace(swarm, servers=(*swarm.servers, server(name, placement.span.start, placement.span.end)))


def test_an_arrival_is_told_why() -> None:
    assert choose_span(model(4, server("a", 0, 2)), 2).reason == "blocks 2–3 have no server"
    thin = choose_span(model(4, server("a", 0, 4), server("b", 0, 2)), 2)
    assert (thin.span, thin.reason) == (Span(2, 4), "blocks 2–3 have only one server")


def test_a_server_larger_than_the_model_takes_all_of_it() -> None:
    assert choose_span(model(4), 100).span == Span(0, 4)


def test_a_joining_server_and_a_promise_count_as_reservations() -> None:
    joining = model(4, server("a", 0, 2, PeerState.JOINING))
    assert choose_span(joining, 2).span == Span(2, 4)
    assert choose_span(joining, 2, [Promise(peer_id("b"), Span(2, 4))]).reason_code is ReasonCode.THINNEST


def test_a_server_of_unknown_throughput_is_a_server() -> None:
    swarm = model(4, server("a", 0, 2, throughput=None), server("b", 2, 4, throughput=5.0), server("c", 0, 2, throughput=None))
    assert choose_span(swarm, 2).span == Span(2, 4)


def test_a_restarted_server_is_not_in_its_own_way() -> None:
    swarm = model(4, server("me", 0, 2), server("a", 2, 4))
    advice = advise(swarm, peer_id("me"), 2, serving=None)
    assert advice.placement is not None
    assert advice.placement.span == Span(0, 2)


# --- repair

DEMO = model(30, server("a", 0, 12), server("b", 12, 24), server("c", 18, 30), server("d", 0, 12, throughput=9.0))


def without_server(swarm: Model, name: str) -> Model:
    return replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id != peer_id(name)))


def test_the_hole_of_a_dead_server_is_filled_by_the_slower_of_two_redundant_ones() -> None:
    (move,) = repair(without_server(DEMO, "b"))
    assert move.peer_id == peer_id("d")
    assert move.filled == tuple(range(12, 18))
    assert move.reason == "blocks 12–17 have no server"
    assert move.target.covers(Span(12, 18))


def test_nobody_moves_where_every_block_has_a_server() -> None:
    assert repair(DEMO) == ()


def test_nobody_leaves_blocks_that_nobody_else_holds() -> None:
    swarm = model(6, server("a", 0, 2), server("b", 2, 4))
    assert repair(swarm) == ()
    assert advise(swarm, peer_id("a"), 2, serving=Span(0, 2)).reason_code is ReasonCode.NO_SAFE_MOVE


def test_one_donor_per_hole_and_the_others_are_told_so() -> None:
    swarm = without_server(DEMO, "b")
    chosen = advise(swarm, peer_id("d"), 12, serving=Span(0, 12))
    other = advise(swarm, peer_id("a"), 12, serving=Span(0, 12))
    assert chosen.placement is not None
    assert other.placement is None
    assert other.reason_code is ReasonCode.OTHER_SERVER_MOVES


def test_a_promised_move_closes_the_hole_and_keeps_its_second_donor_where_it_is() -> None:
    swarm = without_server(DEMO, "b")
    promise = Promise(peer_id("d"), Span(12, 24))
    assert find_holes(swarm, [promise]) == ()
    advice = advise(swarm, peer_id("a"), 12, serving=Span(0, 12), promises=[promise])
    assert advice.reason_code is ReasonCode.BEING_REPAIRED


def test_a_server_that_does_not_follow_hints_is_a_fixed_point() -> None:
    (move,) = repair(without_server(DEMO, "b"), movable={peer_id("a")})
    assert move.peer_id == peer_id("a")


def test_blocks_that_could_not_be_read_draw_nobody() -> None:
    swarm = replace(without_server(DEMO, "b"), unread_blocks=frozenset(range(12, 18)))
    assert repair(swarm) == ()


def test_a_move_decided_before_somebody_else_came_is_objected_to() -> None:
    d = peer_id("d")
    assert still_useful(without_server(DEMO, "b"), d, Span(12, 24), Span(0, 12)) is None
    assert still_useful(DEMO, d, Span(12, 24), Span(0, 12)) == "blocks 12–23 have been given a server meanwhile"
    only_d_left = without_server(without_server(DEMO, "b"), "a")
    assert still_useful(only_d_left, d, Span(12, 24), Span(0, 12)) == "without this server blocks 0–11 have no server"


def test_a_move_beyond_a_model_that_has_shrunk_is_not_made() -> None:
    smaller = model(20, *(s for s in DEMO.servers if s.span.end <= 20))
    for origin in (Span(0, 12), None):
        for code in ReasonCode:
            why = still_useful(smaller, peer_id("d"), Span(12, 24), origin, reason_code=code, known=Circumstances())
            assert why == "the model has blocks 0 to 19 by now"
    why = objection(Demand(DEMO, 1.0, 1), Demand(smaller, 1.0, 1), peer_id("d"), Span(0, 12), Span(12, 24))
    assert why == "tiny-hf has blocks 0 to 19 by now"


# --- properties


def uncovered(swarm: Model, *, online_only: bool) -> set[int]:
    counted = (PeerState.ONLINE,) if online_only else (PeerState.ONLINE, PeerState.JOINING)
    held = {block for s in swarm.servers if s.state in counted for block in s.span}
    return set(range(swarm.num_blocks)) - held


@given(models())
def test_a_plan_never_opens_a_hole_not_even_while_the_replacements_load(swarm: Model) -> None:
    moves = repair(swarm)
    movers = {move.peer_id for move in moves}
    while_loading = replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id not in movers))
    assert uncovered(while_loading, online_only=True) == uncovered(swarm, online_only=True)


@given(models())
def test_a_plan_fills_what_it_says_keeps_sizes_and_stays_put_on_its_own_result(swarm: Model) -> None:
    moves = repair(swarm)
    after = swarm
    for move in moves:
        assert len(move.target) == min(len(move.origin), swarm.num_blocks)
        assert move.filled
        after = moved(after, move.peer_id, move.target)
    filled = {block for move in moves for block in move.filled}
    # A block that could not be read is no hole, but may get a server on the way.
    assert uncovered(after, online_only=False) <= uncovered(swarm, online_only=False) - filled
    assert len({move.peer_id for move in moves}) == len(moves)
    assert repair(swarm, [Promise(move.peer_id, move.target) for move in moves]) == ()


@given(models(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_no_decision_depends_on_the_order_of_records(swarm: Model, num_blocks: int, source: random.Random) -> None:
    shuffled = list(swarm.servers)
    source.shuffle(shuffled)
    other = replace(swarm, servers=tuple(shuffled))
    assert repair(other) == repair(swarm)
    assert choose_span(other, num_blocks) == choose_span(swarm, num_blocks)


@given(models(), st.integers(1, 12))
def test_an_arrival_never_leaves_more_holes_than_any_other_window_would(swarm: Model, num_blocks: int) -> None:
    """Of blocks that could be read: of the others nobody knows whether they are holes, unless nothing could be read at all."""
    chosen = choose_span(swarm, num_blocks).span
    unread = swarm.unread_blocks if len(swarm.unread_blocks) < swarm.num_blocks else frozenset()
    holes = uncovered(swarm, online_only=False) - unread
    size = min(num_blocks, swarm.num_blocks)
    best = max(len(holes & set(range(start, start + size))) for start in range(swarm.num_blocks - size + 1))
    assert len(holes & set(chosen)) == best
    assert len(chosen) == size
