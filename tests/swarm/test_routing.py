from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MissingBlocks
from swarm.routing import Candidate, Hop, choose_route
from swarm.wire.spans import Span
from tests.swarms import peer_id


@st.composite
def candidate_lists(draw: st.DrawFn) -> tuple[list[Candidate], Span]:
    num_blocks = draw(st.integers(1, 10))
    found = []
    for index in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, num_blocks - 1))
        end = draw(st.integers(start + 1, num_blocks))
        rate = draw(st.none() | st.floats(1.0, 500.0))
        found.append(Candidate(peer_id(f"s{index}"), Span(start, end), rate, draw(st.none() | st.floats(0.001, 1.0))))
    return found, Span(0, num_blocks)


@given(candidate_lists(), st.randoms(use_true_random=False))
def test_a_route_has_no_hole_uses_what_servers_hold_and_is_stable(
    case: tuple[list[Candidate], Span], source: random.Random
) -> None:
    candidates, span = case
    held = {block for c in candidates for block in c.span}
    if not set(span) <= held:
        with pytest.raises(MissingBlocks) as caught:
            choose_route(candidates, span)
        assert set(caught.value.blocks) == set(span) - held
        return
    route = choose_route(candidates, span)
    assert [block for hop in route for block in hop.span] == list(span)
    spans = {c.peer_id: c.span for c in candidates}
    assert all(spans[hop.peer_id].covers(hop.span) for hop in route)
    shuffled = list(candidates)
    source.shuffle(shuffled)
    assert choose_route(shuffled, span) == route


def test_one_server_for_all_blocks_beats_a_chain_of_two() -> None:
    whole, left, right = (Candidate(peer_id(n), s) for n, s in [("w", Span(0, 4)), ("l", Span(0, 2)), ("r", Span(2, 4))])
    assert choose_route([left, right, whole], Span(0, 4)) == (Hop(peer_id("w"), Span(0, 4)),)


def test_a_server_to_avoid_is_not_used_and_the_missing_blocks_are_named() -> None:
    left, right = Candidate(peer_id("l"), Span(0, 2)), Candidate(peer_id("r"), Span(2, 4))
    with pytest.raises(MissingBlocks, match="blocks 2–3 have no server"):
        choose_route([left, right], Span(0, 4), avoid={peer_id("r")})


def test_a_fast_server_is_preferred_for_the_blocks_that_two_hold() -> None:
    slow = Candidate(peer_id("a"), Span(0, 4), blocks_per_s=1.0)
    fast = Candidate(peer_id("b"), Span(1, 4), blocks_per_s=100.0)
    assert choose_route([slow, fast], Span(0, 4)) == (Hop(peer_id("a"), Span(0, 1)), Hop(peer_id("b"), Span(1, 4)))
