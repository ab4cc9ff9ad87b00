"""The arrays say what the formula says."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.placement.decisions import Circumstances
from swarm.placement.holders import Holder, counts, moved, planned
from swarm.placement.objective import (
    EXPONENT,
    FLOOR,
    RISK_WEIGHT,
    Ground,
    arrival,
    best_windows,
    departure,
    survey,
    survey_after,
    worth,
)
from swarm.snapshot import Model
from swarm.wire.spans import Span
from tests.strategies import crowds
from tests.swarms import model, peer_id, server


def phi(num_blocks: int, holders: list[Holder], ideal: float, rates: dict[str, float], operators: dict[str, str]) -> float:
    """Φ block by block, as it is written down."""
    odds = float(departure(np.array([3600.0]))[0])
    total = 0.0
    for block in range(num_blocks):
        here = [holder.peer_id for holder in holders if block in holder.span]
        if here:
            independent = {operators.get(peer, peer) for peer in here}
            total += (sum(rates[peer] for peer in here) / ideal + FLOOR) ** -EXPONENT + RISK_WEIGHT * odds ** len(independent)
    return total


@settings(max_examples=60)
@given(crowds(), st.sets(st.integers(0, 11), max_size=5))
def test_the_best_window_of_each_server_is_the_one_that_lowers_phi_most(swarm: Model, together: set[int]) -> None:
    operators = {peer_id(f"s{number}"): "one house" for number in together}
    holders = planned(swarm, ())
    ground = survey(swarm.num_blocks, holders, Circumstances(operators=operators))
    rates = {holder.peer_id: float(rate) for holder, rate in zip(holders, ground.rates, strict=True)}
    before = phi(swarm.num_blocks, holders, ground.ideal, rates, operators)
    assert ground.phi() == pytest.approx(before, rel=1e-9)
    # The server that holds everything stays, so that no block is left bare.
    movers = np.array([at for at, holder in enumerate(holders) if holder.peer_id != peer_id("base")])
    sizes = np.array([len(holders[at].span) for at in movers])
    lowest, starts = best_windows(ground, movers, sizes)
    for at, change, start in zip(movers, lowest, starts, strict=True):
        size = len(holders[at].span)

        def after(begin: int, at: int = at, size: int = size) -> float:
            there = moved(holders, holders[at].peer_id, Span(begin, begin + size))
            return phi(swarm.num_blocks, there, ground.ideal, rates, operators) - before

        options = [after(begin) for begin in range(swarm.num_blocks - size + 1)]
        # The change is a difference of what leaving costs and coming wins: with a block that is next to nothing without this
        # server both are large, and their last digits are lost.
        gone = phi(swarm.num_blocks, [h for h in holders if h is not holders[at]], ground.ideal, rates, operators)
        close = {"rel": 1e-6, "abs": 1e-9 * before + 1e-14 * gone}
        assert change == pytest.approx(min(options), **close)
        assert options[start] == pytest.approx(min(options), **close)


@settings(max_examples=60)
@given(crowds(), st.sets(st.integers(0, 11), max_size=6), st.data())
def test_the_ground_after_a_move_is_that_of_a_new_survey_to_the_last_digit(
    swarm: Model, together: set[int], data: st.DataObject
) -> None:
    known = Circumstances(
        operators={peer_id(f"s{number}"): f"house {number % 2}" for number in together},
        ages_s={peer_id(f"s{number}"): 1000.0 * number for number in range(5)},
    )
    holders = planned(swarm, ())
    ground = survey(swarm.num_blocks, holders, known)
    for _ in range(3):
        mover = data.draw(st.sampled_from(holders))
        start = data.draw(st.integers(0, swarm.num_blocks - len(mover.span)))
        holders = moved(holders, mover.peer_id, Span(start, start + len(mover.span)))
        assert holders == planned_order(holders)
        ground, anew = survey_after(ground, holders, mover.peer_id), survey(swarm.num_blocks, holders, known)
        for field in fields(Ground):
            one, other = getattr(ground, field.name), getattr(anew, field.name)
            assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other, field.name
        assert list(ground.online) == counts(swarm.num_blocks, holders, online_only=True)


def planned_order(holders: list[Holder]) -> list[Holder]:
    return sorted(holders, key=lambda holder: (holder.span.start, holder.span.end, holder.peer_id))


@given(crowds(), st.floats(1.0, 50.0))
def test_an_arrival_changes_phi_by_what_it_adds(swarm: Model, rate: float) -> None:
    holders = planned(swarm, ())
    ground = survey(swarm.num_blocks, holders)
    odds = float(departure(np.array([3600.0]))[0])
    rates = {holder.peer_id: float(figure) for holder, figure in zip(holders, ground.rates, strict=True)} | {"new": rate}
    before = phi(swarm.num_blocks, holders, ground.ideal, rates, {})
    for start, change in enumerate(arrival(ground, 2, rate, odds)):
        joined = [*holders, Holder("new", Span(start, start + 2), False, rate)]
        difference = phi(swarm.num_blocks, joined, ground.ideal, rates, {}) - before
        assert change == pytest.approx(difference, rel=1e-6, abs=1e-9 * before)


def test_a_hole_is_not_in_phi_and_does_not_drown_the_other_blocks() -> None:
    holed = survey(4, planned(model(4, server("a", 0, 3), server("b", 0, 3)), ()))
    assert holed.phi() < 1e9
    assert list(holed.held) == [2, 2, 2, 0]


def test_to_raise_the_weakest_block_is_worth_more_than_to_raise_thirty_that_are_nearly_as_weak() -> None:
    def of(weakest: float, near: float) -> float:
        rates = [weakest, *[near] * 30, *[120.0] * 29]
        ground = survey(60, planned(model(60, *(server(f"s{n}", n, n + 1, throughput=r) for n, r in enumerate(rates))), ()))
        return worth(replace(ground, ideal=100.0, alone=np.zeros(60)).phi(), 60)

    assert of(80.0, 80.0) > of(70.0, 84.0) > of(70.0, 80.0)


def test_who_has_stayed_long_stays() -> None:
    young, old = departure(np.array([0.0, 24 * 3600.0]))
    assert 0 < old < young < 1
    assert math.isclose(young, 1 - math.exp(-((1 / 8) ** 0.6)))


def test_an_even_swarm_is_worth_its_bottleneck_however_many_blocks_it_has() -> None:
    for blocks in (2, 80):
        ground = survey(blocks, planned(model(blocks, server("a", 0, blocks), server("b", 0, blocks)), ()))
        assert worth(ground.phi(0.0), blocks) == pytest.approx(1.0 + FLOOR)
