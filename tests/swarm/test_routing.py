"""Routes: never a hole, never a server that does not hold a block, the cheapest there is, and the same for the same swarm."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MissingBlocks
from swarm.routing import Bans, Candidate, Hop, Route, Wanted, choose_route, expected_s, spread_route
from swarm.routing.bans import MOST_REMEMBERED
from swarm.routing.chains import MOST_PER_BLOCK
from swarm.wire.spans import Span
from tests.swarms import peer_id

SECONDS = st.floats(0.001, 1.0)


@st.composite
def candidate_lists(draw: st.DrawFn, most_blocks: int = 10, most_servers: int = 6) -> tuple[list[Candidate], Span]:
    num_blocks = draw(st.integers(1, most_blocks))
    peers = [peer_id(f"s{index}") for index in range(draw(st.integers(0, most_servers)))]
    found = []
    for name in peers:
        start = draw(st.integers(0, num_blocks - 1))
        found.append(
            Candidate(
                name,
                Span(start, draw(st.integers(start + 1, num_blocks))),
                draw(st.none() | st.floats(1.0, 500.0)),
                draw(st.none() | SECONDS),
                cache_tokens_left=draw(st.none() | st.integers(0, 2_000)),
                sessions=draw(st.integers(0, 8)),
                next_pings=draw(st.dictionaries(st.sampled_from(peers), SECONDS | st.just(math.inf), max_size=4)),
            )
        )
    return found, Span(0, num_blocks)


@given(candidate_lists(), st.booleans(), st.randoms(use_true_random=False))
def test_a_route_has_no_hole_uses_what_servers_hold_and_is_stable(
    case: tuple[list[Candidate], Span], push: bool, source: random.Random
) -> None:
    candidates, span = case
    held = {block for c in candidates for block in c.span}
    if not set(span) <= held:
        for choose in (
            lambda: choose_route(candidates, span, push=push),
            lambda: spread_route(candidates, span, source.random),
        ):
            with pytest.raises(MissingBlocks) as caught:
                choose()
            assert set(caught.value.blocks) == set(span) - held
        return
    route = choose_route(candidates, span, cache_tokens=100, push=push)
    shuffled = list(candidates)
    source.shuffle(shuffled)
    assert choose_route(shuffled, span, cache_tokens=100, push=push) == route
    for one in (route, spread_route(candidates, span, source.random)):
        assert [block for hop in one for block in hop.span] == list(span)
        spans = {c.peer_id: c.span for c in candidates}
        assert all(spans[hop.peer_id].covers(hop.span) for hop in one)


def every_route(candidates: list[Candidate], span: Span) -> list[Route]:
    """All ways to give each block to one of its holders."""
    routes = []
    for holders in itertools.product(*([c.peer_id for c in candidates if block in c.span] for block in span)):
        hops: list[Hop] = []
        for block, holder in zip(span, holders, strict=True):
            if hops and hops[-1].peer_id == holder:
                hops[-1] = Hop(holder, Span(hops[-1].span.start, block + 1))
            else:
                hops.append(Hop(holder, Span(block, block + 1)))
        routes.append(tuple(hops))
    return routes


@given(candidate_lists(most_blocks=5, most_servers=4), st.booleans())
def test_no_route_is_better(case: tuple[list[Candidate], Span], push: bool) -> None:
    """Fewest servers without room first, then the least expected time."""
    candidates, span = case
    routes = every_route(candidates, span)
    if not routes:
        return
    full = {c.peer_id: c.is_full(span, 100) for c in candidates}

    def worth(route: Route) -> tuple[int, float]:
        return sum(full[hop.peer_id] for hop in route), expected_s(route, candidates, push=push)

    chosen, best = worth(choose_route(candidates, span, cache_tokens=100, push=push)), min(map(worth, routes))
    assert chosen[0] == best[0]
    assert chosen[1] == pytest.approx(best[1])


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


def only(route: Route) -> str:
    [hop] = route
    return hop.peer_id


def test_a_full_server_is_chosen_only_where_there_is_no_other() -> None:
    """However slow the others are."""
    full = Candidate(peer_id("a"), Span(0, 4), blocks_per_s=500.0, round_trip_s=0.001, cache_tokens_left=2 * 4 * 100)
    slow = Candidate(peer_id("b"), Span(0, 4), blocks_per_s=0.01, round_trip_s=9.0)
    assert only(choose_route([full, slow], Span(0, 4), cache_tokens=100)) == full.peer_id
    assert only(choose_route([full, slow], Span(0, 4), cache_tokens=101)) == slow.peer_id
    assert only(choose_route([full], Span(0, 4), cache_tokens=101)) == full.peer_id


def test_a_server_with_many_sessions_counts_as_slower() -> None:
    busy = Candidate(peer_id("a"), Span(0, 4), blocks_per_s=100.0, sessions=20)
    idle = Candidate(peer_id("b"), Span(0, 4), blocks_per_s=90.0)
    assert only(choose_route([busy, idle], Span(0, 4))) == idle.peer_id


def test_with_push_the_ways_between_servers_count_and_without_those_to_the_client() -> None:
    first = Candidate(peer_id("a"), Span(0, 2), round_trip_s=0.1, next_pings={peer_id("b"): 0.01, peer_id("c"): 0.4})
    near_to_it = Candidate(peer_id("b"), Span(2, 4), round_trip_s=0.12)
    near_to_us = Candidate(peer_id("c"), Span(2, 4), round_trip_s=0.09)
    swarm = [first, near_to_it, near_to_us]
    assert choose_route(swarm, Span(0, 4), push=True)[-1].peer_id == near_to_it.peer_id
    assert choose_route(swarm, Span(0, 4), push=False)[-1].peer_id == near_to_us.peer_id


def test_in_a_large_swarm_every_block_keeps_holders() -> None:
    """Only the most promising are considered, for each block anew."""
    many = [Candidate(peer_id(f"m{n}"), Span(0, 4), blocks_per_s=100.0, round_trip_s=0.01) for n in range(MOST_PER_BLOCK + 5)]
    lonely = Candidate(peer_id("z"), Span(4, 5), blocks_per_s=0.1, round_trip_s=2.0)
    assert choose_route([*many, lonely], Span(0, 5))[-1] == Hop(lonely.peer_id, Span(4, 5))


def test_training_spreads_passes_by_rate_and_is_the_same_for_the_same_seed() -> None:
    fast = Candidate(peer_id("a"), Span(0, 4), blocks_per_s=300.0)
    slow = Candidate(peer_id("b"), Span(0, 4), blocks_per_s=100.0)

    def drawn(seed: int) -> list[str]:
        source = random.Random(seed)
        return [only(spread_route([fast, slow], Span(0, 4), source.random)) for _ in range(400)]

    assert drawn(1) == drawn(1)
    assert 0.6 < Counter(drawn(1))[fast.peer_id] / 400 < 0.9
    assert only(spread_route([fast, slow], Span(0, 4), lambda: 0.0, avoid={fast.peer_id})) == slow.peer_id


def test_bans_grow_with_each_failure_and_are_forgotten_after_a_success() -> None:
    bans = Bans(first_s=10.0, longest_s=35.0)
    assert [bans.failed("a", 100.0) for _ in range(4)] == [10.0, 20.0, 35.0, 35.0]
    assert bans.failed("b", 100.0) == 10.0
    assert bans.in_force(105.0) == {"a", "b"}
    assert bans.in_force(110.0) == {"a"}
    bans.forgive()
    assert bans.in_force(105.0) == frozenset()
    assert bans.failed("b", 105.0) == 20.0
    bans.worked("a")
    assert bans.failed("a", 200.0) == 10.0


def test_made_up_peers_do_not_fill_the_memory() -> None:
    bans = Bans()
    for number in range(MOST_REMEMBERED + 10):
        bans.failed(str(number), float(number))
    assert len(bans.in_force(0.0)) == MOST_REMEMBERED


def test_a_wish_admits_allowed_peers_that_are_not_blocked() -> None:
    wanted = Wanted(Span(0, 1), allowed=frozenset("ab"), blocked=frozenset("b"))
    assert [wanted.admits(peer) for peer in "abc"] == [True, False, False]
    assert Wanted(Span(0, 1), blocked=frozenset("b")).admits("c")
