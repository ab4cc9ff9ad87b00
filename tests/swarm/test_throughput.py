"""Reported throughput is not believed: never more than reported, and no more than other evidence allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.snapshot import PeerState, Timing
from swarm.throughput import (
    CLIENTS_LEAST,
    DOUBTED_SHARE,
    SETTLED_S,
    SLACK,
    WEIGHT_TOKENS,
    Basis,
    Crowd,
    Evidence,
    believe,
    believed_rates,
    crowd_of,
    rate_of,
)
from swarm.wire.records import ServerRecord, ServerState
from tests.swarms import model, peer_id, server


def record(throughput: float | None, **details: object) -> ServerRecord:
    return replace(ServerRecord(ServerState.ONLINE, throughput), **details)  # type: ignore[arg-type]


def test_unknown_is_unknown_and_not_zero() -> None:
    assert believe(record(None), 4).believed is None
    measured = believe(record(None), 4, Evidence([5.0]))
    assert (measured.reported, measured.believed, measured.basis) == (None, 5.0, Basis.MEASURED)


def test_a_measured_rate_with_some_slack_is_the_most_that_is_believed() -> None:
    liar = believe(record(100.0), 4, Evidence([9.0, 10.0, 500.0]))
    assert (liar.reported, liar.believed, liar.basis) == (100.0, 10.0 * SLACK, Basis.MEASURED)
    honest = believe(record(10.0), 4, Evidence([9.0, 10.0, 11.0]))
    assert (honest.believed, honest.basis) == (10.0, Basis.REPORTED)


def test_a_record_is_held_to_its_own_figures() -> None:
    inflated = believe(record(500.0, forward_rps=100.0, network_rps=80.0), 4)
    assert inflated.believed == pytest.approx(1.1 * 40.0)
    assert inflated.basis is Basis.INCONSISTENT


def test_no_device_does_more_than_its_class() -> None:
    assert believe(record(1e9), 10).basis is Basis.DEVICE
    slow, fast = (believe(record(1e9, torch_dtype=kind), 60).believed for kind in ("float32", "bfloat16"))
    assert slow is not None and fast is not None and slow < fast
    relayed = believe(record(1e9, using_relay=True), 1).believed
    assert relayed is not None and relayed < (believe(record(1e9), 1).believed or 0.0)


def test_a_newcomer_counts_as_a_usual_server_at_most_until_it_is_measured_or_has_stayed() -> None:
    crowd = Crowd(usual=10.0, high=40.0)
    assert believe(record(30.0), 4, Evidence(seen_s=60.0), crowd).believed == 10.0
    assert believe(record(30.0), 4, Evidence(seen_s=SETTLED_S), crowd).believed == 30.0
    assert believe(record(30.0), 4, Evidence([30.0], seen_s=60.0), crowd).believed == 30.0
    assert believe(record(3.0), 4, Evidence(seen_s=60.0), crowd).believed == 3.0
    assert believe(record(400.0), 4, Evidence(seen_s=SETTLED_S), crowd).basis is Basis.CROWD


def test_in_a_small_swarm_nobody_stands_out() -> None:
    assert crowd_of([5.0, 500.0]) == Crowd()
    assert crowd_of([1.0] * 18 + [900.0, 1000.0]) == Crowd(1.0, 1.0)


def test_every_server_that_serves_or_loads_is_judged_against_the_others() -> None:
    swarm = model(
        4,
        *(server(f"s{n}", 0, 4, throughput=10.0) for n in range(9)),
        server("boaster", 0, 4, throughput=100.0),
        server("gone", 0, 4, PeerState.UNREACHABLE),
    )
    beliefs = believed_rates(swarm)
    assert peer_id("gone") not in beliefs
    assert beliefs[peer_id("boaster")].believed == 10.0
    assert beliefs[peer_id("s1")].basis is Basis.REPORTED


@given(
    st.floats(0.1, 1e9),
    st.integers(1, 100),
    st.lists(st.floats(0.1, 1e9), max_size=4),
    st.none() | st.floats(0, 1e5),
    st.floats(0.1, 1e6),
    st.sampled_from(["", "its answer is all zeros"]),
)
def test_no_evidence_ever_raises_a_reported_figure(
    reported: float, blocks: int, measured: list[float], seen: float | None, usual: float, doubted: str
) -> None:
    belief = believe(record(reported), blocks, Evidence(measured, seen, doubted=doubted), Crowd(usual, 4 * usual))
    assert belief.believed is not None
    assert 0 < belief.believed <= reported
    assert (belief.basis is Basis.REPORTED) == (belief.believed == reported)


def test_clients_lower_a_belief_by_half_at_most_and_only_several_together() -> None:
    measured = Evidence([100.0])
    two, three, mild = (replace(measured, clients=told) for told in ((1.0, 1.0), (1.0, 1.0, 1.0), (60.0, 64.0, 90.0)))
    assert believe(record(100.0), 4, two).believed == 100.0, "a peer id costs nothing: two prove nothing"
    bad = believe(record(100.0), 4, three)
    assert (bad.believed, bad.basis) == (100.0 * CLIENTS_LEAST, Basis.CLIENTS)
    assert believe(record(100.0), 4, mild).believed == 64.0 * SLACK


def test_whose_answers_are_doubted_counts_as_half_a_usual_server_at_most_however_fast_it_was() -> None:
    doubted = Evidence([1000.0, 1000.0], doubted="its answer is all zeros")
    quick = believe(record(1000.0), 4, doubted, Crowd(usual=100.0))
    assert (quick.believed, quick.basis) == (DOUBTED_SHARE * 100.0, Basis.ANSWERS) and "all zeros" in quick.reason
    assert doubted.rate is None
    assert believe(record(30.0), 4, doubted, Crowd(usual=100.0)).believed == 30.0
    assert believe(record(1000.0), 4, doubted).believed == DOUBTED_SHARE * 1000.0, "nobody knows what is usual"
    assert believe(record(None), 4, doubted, Crowd(usual=100.0)).believed == DOUBTED_SHARE * 100.0
    assert believe(record(None), 4, doubted).believed is None, "and not what was measured"


def test_doubted_servers_do_not_set_what_is_usual() -> None:
    honest, liars = [f"s{n}" for n in range(3)], [f"l{n}" for n in range(3)]
    fast = (server(name, 0, 4, throughput=1e4) for name in liars)
    swarm = model(4, *(server(name, 0, 4, throughput=10.0) for name in honest), *fast)
    beliefs = believed_rates(swarm, {peer_id(name): Evidence([1e4], doubted="it lies") for name in liars})
    assert {beliefs[peer_id(name)].believed for name in liars} == {DOUBTED_SHARE * 10.0}


@given(st.lists(st.floats(0.01, 1e6), max_size=80))
def test_whatever_clients_say_they_raise_nothing(told: list[float]) -> None:
    alone = believe(record(1e5), 4, Evidence([50.0])).believed
    with_them = believe(record(1e5), 4, Evidence([50.0], clients=told)).believed
    assert alone is not None and with_them is not None
    assert CLIENTS_LEAST * alone <= with_them <= alone


def timed(tokens: int, blocks: int, compute: float, line: float, round_trip_s: float) -> Timing:
    """As a server of so many tokens x blocks per second behind a line of so many tokens per second would take it."""
    block_s, line_s = (tokens + WEIGHT_TOKENS) / compute, 2 * tokens / line + round_trip_s
    return Timing(tokens, blocks, blocks * block_s + line_s, block_s + line_s, round_trip_s)


@given(st.integers(1, 128), st.integers(2, 40), st.floats(50, 2e4), st.floats(5, 2000), st.floats(0.0, 0.2))
def test_a_probe_gives_at_least_what_the_server_really_does(
    tokens: int, blocks: int, compute: float, line: float, round_trip_s: float
) -> None:
    honest = min(2 * compute / (blocks + 1), line)
    found = rate_of(timed(tokens, blocks, compute, line, round_trip_s))
    assert found >= 0.99 * honest or (blocks - 1) * (tokens + WEIGHT_TOKENS) / compute < 0.003


def test_a_probe_finds_a_slow_card_and_a_slow_line() -> None:
    card = rate_of(timed(64, 10, 500.0, 1000.0, 0.05))
    assert card == pytest.approx(2 * 500.0 / 11)
    line = rate_of(timed(64, 10, 5000.0, 20.0, 0.05))
    assert 20.0 <= line < 1.1 * 20.0
    alone = rate_of(timed(64, 1, 500.0, 1e9, 0.0))
    assert alone == pytest.approx(500.0)


@pytest.mark.parametrize("age_s", [60.0, SETTLED_S, 1e6])
def test_a_liar_that_evades_probes_counts_as_a_usual_server_for_ever(age_s: float) -> None:
    """It says that it is busy whenever it is to be measured."""
    honest = [server(f"s{n}", 0, 8, throughput=float(20 + 3 * n)) for n in range(40)]
    swarm = model(8, *honest, server("liar", 0, 8, throughput=1_000.0))
    evidence = {s.peer_id: Evidence((s.record.throughput or 0.0,), age_s) for s in honest}
    evidence[peer_id("liar")] = Evidence((), age_s)
    belief = believed_rates(swarm, evidence)[peer_id("liar")]
    assert belief.believed == 78.5, "the middle of the measured"
    assert belief.basis in (Basis.UNMEASURED, Basis.NEWCOMER) and "no more than a usual server" in belief.reason
    slow = believed_rates(model(8, *honest, server("slow", 0, 8, throughput=5.0)), evidence)[peer_id("slow")]
    assert (slow.believed, slow.basis) == (5.0, Basis.REPORTED), "nobody gains by a small word"


def test_in_a_small_swarm_too_half_of_the_others_are_enough() -> None:
    three = model(4, *(server(name, 0, 4, throughput=10.0) for name in "ab"), server("liar", 0, 4, throughput=500.0))
    one = {peer_id("a"): Evidence((10.0,), 1e5)}
    assert believed_rates(three, one)[peer_id("liar")].believed == 10.0
    assert believed_rates(three, {peer_id("liar"): Evidence((), 1e5)})[peer_id("liar")].basis is Basis.CROWD


def test_where_hardly_anybody_is_measured_nobody_is_an_exception() -> None:
    swarm = model(4, *(server(f"s{n}", 0, 4, throughput=10.0 + n) for n in range(20)))
    few = {peer_id(f"s{n}"): Evidence((10.0,), 1e5) for n in range(9)}
    settled = few | {peer_id(f"s{n}"): Evidence((), 1e5) for n in range(9, 20)}
    bases = {belief.basis for belief in believed_rates(swarm, settled).values()}
    assert Basis.UNMEASURED not in bases
