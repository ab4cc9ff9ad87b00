"""A clock that runs wrong is told from a server that is late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.skew import CLOCKS_AGREE_S, estimate, with_skew
from swarm.snapshot import PeerState, Snapshot
from swarm.wire.records import ServerState
from tests.swarms import model, server

NOW = 1_000_000.0


def crawled(skew: float, period: float, phase: float, interval: float) -> float | None:
    """What two crawls, `interval` apart, make of a server that announced `phase` after the first of them."""
    life = max(2 * period, 60.0)
    second = NOW + phase + skew + life
    return estimate(second - period, NOW, second, NOW + interval)


@given(st.floats(20, 300), st.floats(0.01, 0.99), st.floats(5, 60), st.floats(-200, 200))
def test_the_estimate_never_exceeds_the_truth(period: float, share: float, interval: float, skew: float) -> None:
    seen = crawled(skew, period, share * interval, interval)
    if seen is not None and seen != 0:
        assert (seen > 0) == (skew > 0) and abs(seen) <= abs(skew) + 1e-3


@pytest.mark.parametrize("skew", [90.0, -90.0])
def test_a_clock_a_minute_and_a_half_off_shows(skew: float) -> None:
    seen = crawled(skew, 120, 10, 30)
    assert seen is not None and abs(seen - skew) <= 30


def test_clocks_that_agree_show_nothing() -> None:
    assert crawled(0.0, 120, 10, 30) == 0.0
    assert crawled(CLOCKS_AGREE_S / 2, 120, 29, 30) == 0.0


def test_without_a_renewal_nothing_can_be_said() -> None:
    assert estimate(NOW + 100, NOW, NOW + 100, NOW + 30) is None
    assert estimate(NOW + 100, NOW, NOW + 3_700, NOW + 30) is None


def test_a_server_that_changed_announced_out_of_turn_and_keeps_its_last_estimate() -> None:
    before = replace(server("a", 0, 2), expires_at=NOW + 100, skew_s=7.0)
    after = replace(before, expires_at=NOW + 300, skew_s=None)
    joined = replace(after, record=replace(after.record, state=ServerState.JOINING), state=PeerState.JOINING)

    def skew_of(now_seen):  # type: ignore[no-untyped-def]
        then, now = Snapshot("s", NOW, (model(2, before),)), Snapshot("s", NOW + 30, (model(2, now_seen),))
        return with_skew(now, then).models[0].servers[0].skew_s

    assert skew_of(joined) == 7.0
    assert skew_of(replace(after, expires_at=NOW + 100)) == 7.0, "not renewed yet"
    assert skew_of(after) != 7.0
    assert with_skew(Snapshot("s", NOW, (model(2, after),)), None).models[0].servers[0].skew_s is None
