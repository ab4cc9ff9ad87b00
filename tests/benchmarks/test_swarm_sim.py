"""The simulator: one trace for all arms, Petals' rule as it is described, sums that add up, a herd that the planner spares."""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import swarm_sim
from benchmarks.sim import petals
from benchmarks.sim.arms import CoordinatorArm, PetalsArm, play
from benchmarks.sim.traces import MEAN_SESSION_S, Scene, trace
from benchmarks.sim.world import World

SMALL = Scene(12, 80, days=0.25)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=3, max_size=12), st.integers(1, 3))
def test_petals_window_is_the_smallest_in_ascending_order(throughput: list[float], size: int) -> None:
    starts = range(len(throughput) - size + 1)
    assert petals.best_start(throughput, size) == min(
        starts, key=lambda start: (sorted(throughput[start : start + size]), start)
    )


def test_a_petals_server_moves_only_where_much_is_gained_and_no_hole_is_opened() -> None:
    seats = [(0, 2, 10.0), (0, 2, 10.0), (0, 2, 10.0), (2, 2, 5.0)]
    totals = petals.totals(seats, 4)
    ideal = petals.settled(seats, 4, random.Random(1))
    assert totals == [30.0, 30.0, 5.0, 5.0]
    assert ideal == pytest.approx(15.0)
    assert petals.wants_to_move(totals, seats[0], lambda: ideal)
    assert not petals.wants_to_move(totals, seats[3], lambda: ideal), "it alone holds its blocks"
    assert not petals.wants_to_move([30.0, 30.0, 12.0, 12.0], (0, 2, 10.0), lambda: 15.0), "0.8 of the ideal is good enough"


def test_all_arms_live_through_the_same_sessions() -> None:
    assert trace(SMALL, 3) == trace(SMALL, 3) != trace(SMALL, 4)
    honest, lying = trace(SMALL, 3), trace(replace(SMALL, liars=0.5, follows=0.5), 3)
    assert [replace(host, liar=False, follows=True) for host in lying] == honest
    assert any(host.liar for host in lying) and not any(host.liar for host in honest)


def test_the_swarm_starts_in_its_steady_state() -> None:
    """As many servers come as go, so that their number stays where it is."""
    scene = Scene(400, 80, days=1)
    hosts = trace(scene, 5)
    here = sum(host.joins <= 24 * 3600 < host.leaves for host in hosts)
    assert abs(here - scene.servers) < 4 * math.sqrt(scene.servers)
    assert len(hosts) - scene.servers == pytest.approx(scene.servers * 27 * 3600 / MEAN_SESSION_S, rel=0.2)


@pytest.mark.parametrize("arm", ["petals", "reported"])
def test_what_is_served_is_what_the_servers_online_hold(arm: str) -> None:
    world = World(replace(SMALL, kill_every_h=2, follows=0.7), 2)
    decides = PetalsArm(world, 2) if arm == "petals" else CoordinatorArm(world, 2)
    tally = world.run()
    assert decides is not None
    online = [s for s in world.servers if s.alive and s.online]
    held = [sum(s.start <= block < s.start + s.size for s in online) for block in range(80)]
    assert world.held.tolist() == held
    rates = [sum(s.host.rate for s in online if s.start <= block < s.start + s.size) for block in range(80)]
    assert world.throughput.tolist() == pytest.approx(rates)
    assert tally.seconds == pytest.approx(0.25 * 24 * 3600)
    assert 0 < tally.share <= tally.available <= tally.seconds


def test_a_run_is_the_same_again() -> None:
    assert str(play(SMALL, 1, "reported")) == str(play(SMALL, 1, "reported"))


@pytest.mark.slow
def test_the_planner_moves_fewer_servers_for_a_hole_than_petals_herd() -> None:
    scene = Scene(60, 126, days=0.2, kill_every_h=2)
    herd, led = (play(scene, 11, arm) for arm in ("petals", "reported"))
    assert led["movers_per_hole"] < herd["movers_per_hole"]
    assert min(led["repair_s"], herd["repair_s"]) > 60, "nobody can load before that"
    assert led["available"] >= herd["available"]


def test_an_interval_of_one_value_is_not_known_and_of_equal_ones_is_nothing() -> None:
    assert math.isnan(swarm_sim.interval([1.0])[1])
    assert swarm_sim.interval([2.0, 2.0, math.nan]) == (2.0, 0.0)
    mean, half = swarm_sim.interval([0.0, 1.0, 2.0])
    assert (mean, half) == (1.0, pytest.approx(4.30 / math.sqrt(3)))


def test_a_table_and_json_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(swarm_sim.FIGURES, "small", swarm_sim.against_petals("small", SMALL))
    out = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["swarm_sim", "--figures", "small", "--seeds", "2", "--json", str(out)])
    swarm_sim.main()
    assert "planner minus Petals: available" in capsys.readouterr().out
    assert set(json.loads(out.read_text())["small"]["rows"]) == {"Petals", "planner"}
