"""Reported throughput is not believed: never more than reported, and no more than other evidence allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.snapshot import PeerState
from swarm.throughput import SETTLED_S, SLACK, Basis, Crowd, Evidence, believe, believed_rates, crowd_of
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
)
def test_no_evidence_ever_raises_a_reported_figure(
    reported: float, blocks: int, measured: list[float], seen: float | None, usual: float
) -> None:
    belief = believe(record(reported), blocks, Evidence(measured, seen), Crowd(usual, 4 * usual))
    assert belief.believed is not None
    assert 0 < belief.believed <= reported
    assert (belief.basis is Basis.REPORTED) == (belief.believed == reported)
