from __future__ import annotations

import random

from hypothesis import given

from swarm.coverage import Verdict, coverage
from swarm.snapshot import Model, PeerState
from tests.strategies import models
from tests.swarms import model, server


def test_a_hole_is_named_with_its_blocks() -> None:
    seen = coverage(model(10, server("a", 0, 4), server("b", 6, 10)))
    assert seen.verdict is Verdict.BROKEN
    assert seen.sentence() == "cannot run: blocks 4–5 have no server"
    assert seen.min_redundancy == 0


def test_a_single_missing_block_is_named_in_the_singular() -> None:
    assert coverage(model(3, server("a", 0, 2))).sentence() == "cannot run: block 2 has no server"


def test_one_server_on_a_block_is_thin_two_everywhere_are_complete() -> None:
    thin = coverage(model(4, server("a", 0, 4), server("b", 0, 3)))
    assert thin.sentence() == "runs, but block 3 has only one server"
    assert coverage(model(4, server("a", 0, 4), server("b", 0, 4))).verdict is Verdict.COMPLETE


def test_joining_unreachable_unchecked_and_leaving_servers_do_not_count() -> None:
    others = [PeerState.JOINING, PeerState.UNREACHABLE, PeerState.NOT_CHECKED, PeerState.LEAVING, PeerState.GONE]
    seen = coverage(model(2, *(server(state.value, 0, 2, state) for state in others)))
    assert seen.verdict is Verdict.BROKEN
    assert len(seen.blocks[0].joining) == 1


def test_a_block_that_could_not_be_read_is_unknown_and_not_down() -> None:
    seen = coverage(model(3, server("a", 0, 2), server("b", 0, 2), unread=frozenset({2})))
    assert seen.verdict is Verdict.UNKNOWN
    assert seen.blocks[2].redundancy is None
    assert seen.holes == ()
    assert seen.min_redundancy is None
    assert seen.sentence() == "unknown: block 2 could not be read"


def test_unknown_throughput_is_unknown_and_not_zero() -> None:
    seen = coverage(model(2, server("a", 0, 2, throughput=None), server("b", 0, 1, throughput=3.0)))
    assert seen.blocks[0].throughput == 3.0
    assert seen.blocks[1].throughput is None
    assert seen.bottleneck is not None
    assert seen.bottleneck.index == 0


@given(models())
def test_coverage_agrees_with_a_plain_count_and_ignores_the_order_of_records(given_model: Model) -> None:
    seen = coverage(given_model)
    for block in seen.blocks:
        holders = {s.peer_id for s in given_model.servers if s.state is PeerState.ONLINE and block.index in s.span}
        assert set(block.online) == holders
    shuffled = list(given_model.servers)
    random.Random(1).shuffle(shuffled)
    assert coverage(Model("tiny-hf", given_model.num_blocks, None, tuple(shuffled), given_model.unread_blocks)) == seen
