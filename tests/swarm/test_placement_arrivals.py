"""Arrivals beyond the first cover: throughput, a span on disk, a shorter span, and several models."""

from __future__ import annotations

from swarm.placement import Circumstances, Demand, Pace, choose_model, choose_span
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span, suffixes
from tests.swarms import model, peer_id, server

HELD = [server(f"{start}{copy}", start, start + 2, throughput=20.0) for start in (0, 2, 4) for copy in range(3)]


def test_where_every_block_has_several_servers_the_weakest_throughput_decides() -> None:
    weak = model(6, *HELD[:6], *(server(f"slow{n}", 4, 6, throughput=9.0) for n in range(4)))
    placement = choose_span(weak, 2)
    assert (placement.span, placement.reason_code) == (Span(4, 6), ReasonCode.WEAKEST)
    assert placement.reason == "blocks 4–5 have 69% of the throughput that these servers could give every block"
    assert placement.gain is not None and placement.gain > 0


def test_a_believed_rate_counts_instead_of_the_reported_one() -> None:
    swarm = model(6, *HELD)
    believed = Circumstances(rates={peer_id(f"2{copy}"): 5.0 for copy in range(3)})
    assert choose_span(swarm, 2).span == Span(0, 2)
    assert choose_span(swarm, 2, known=believed).span == Span(2, 4)


def test_among_equals_the_blocks_on_disk_are_taken() -> None:
    swarm = model(6, *HELD)
    assert choose_span(swarm, 2, on_disk=[Span(4, 6)]).span == Span(4, 6)
    lacking = model(6, *HELD[:8])
    assert choose_span(lacking, 2, on_disk=[Span(0, 2)]).span == Span(4, 6), "a thin spot is worth more than a download"


def test_where_the_whole_model_is_on_the_disk_it_is_no_reason_for_any_blocks() -> None:
    swarm = model(8, server("a", 0, 8), server("b", 0, 8), server("c", 0, 7))
    assert choose_span(swarm, 2, on_disk=suffixes([Span(0, 8)], 8)) == choose_span(swarm, 2)


def test_a_shorter_span_is_served_where_its_speed_is_worth_more() -> None:
    one_weak = model(8, *(server(f"a{n}", 0, 4, throughput=90.0) for n in range(3)), *(server(f"b{n}", 4, 8) for n in range(3)))
    assert len(choose_span(one_weak, 8).span) == 8
    slow = choose_span(one_weak, 8, pace=Pace(forward_rps=200.0))
    assert slow.span == Span(4, 8), "eight blocks at 44 tokens/s help the weak half less than four at 80"
    assert len(choose_span(one_weak, 8, pace=Pace(forward_rps=200.0, network_rps=10.0)).span) == 8, "the line is the limit"


def test_a_hole_is_never_left_for_the_sake_of_speed() -> None:
    assert choose_span(model(8), 8, pace=Pace(forward_rps=200.0)).span == Span(0, 8)


def test_the_model_in_demand_that_gains_most_comes_first() -> None:
    whole = model(6, *HELD)
    broken = model(6, *HELD[:3])
    first, second = choose_model([Demand(whole, 1.0, 2), Demand(broken, 1.0, 2)])
    assert first.placement.reason_code is ReasonCode.HOLE
    assert first.worth > second.worth
    unwanted = choose_model([Demand(whole, 1.0, 2), Demand(broken, 0.0, 2)])
    assert unwanted[0].placement.reason_code is not ReasonCode.HOLE
    assert choose_model([Demand(whole, 1.0, 0)]) == (), "a model of which nothing fits is no choice"
