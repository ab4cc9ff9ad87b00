"""A coordinator that gives no advice, because it does not answer or because it does not see: how long it is waited for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserver.serving.hint_client import HintClient
from blockserver.serving.polling import MOST_S, next_question_after
from blockserver.serving.silence import BLIND_PATIENCE_S, SILENT_POLLS, Silence
from swarm.placement import Placement
from swarm.snapshot import Model
from swarm.wire.spans import Span
from tests.blockserver.coordinators import STAY, Coordinator, coordinator, move
from tests.blockserver.serving.test_advice import Situation
from tests.swarms import model, ours, server

HINT = "/api/v1/hint"
LATER: dict[str, Any] = {
    "advice": "move",
    "reason_code": "hole",
    "reason": "blocks 12–17 have no server",
    "retry_after_s": 30.0,
    "no_lease_because": "32 leases are open from this address; wait for one of them",
    "lease_after_s": 5.0,
}


def unseen(code: str) -> dict[str, Any]:
    return {**STAY, "reason_code": code, "reason": "the monitor cannot see the swarm at the moment"}


@pytest.fixture
def told() -> Iterator[Coordinator]:
    with coordinator() as site:
        yield site


@pytest.mark.parametrize("code", ["blind", "unknown-model"])
async def test_a_coordinator_that_is_blind_for_long_is_as_good_as_none(
    told: Coordinator, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    told.answers[HINT] = unseen(code)
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        assert [await me.decides(after) for after in (0, 200, 200, BLIND_PATIENCE_S - 401)] == [None] * 4
        assert me.looked == 0, "the monitor may hold back a crawl, and its gate is respected"
        assert await me.decides(1) is None
        assert me.looked == 1
        moved_to = await me.decides(61)
    assert moved_to is not None and moved_to.covers(Span(12, 18))
    assert "the monitor cannot see the swarm" in caplog.text and "deciding by itself from 600 s on" in caplog.text


async def test_advice_ends_the_blindness_and_the_waiting_begins_anew(told: Coordinator) -> None:
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        for _ in range(3):
            told.answers[HINT] = unseen("blind")
            assert [await me.decides(after) for after in (0, 250, 250)] == [None] * 3
            told.answers[HINT] = STAY
            assert await me.decides(250) is None
        assert me.looked == 0


async def test_a_coordinator_that_goes_blind_before_it_dies_is_not_waited_for_twice(told: Coordinator) -> None:
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        told.answers[HINT] = unseen("blind")
        assert [await me.decides(after) for after in (0, 300)] == [None] * 2
        told.answers[HINT] = 503
        assert await me.decides(BLIND_PATIENCE_S - 301) is None
        assert me.looked == 0
        await me.decides(1)
        assert me.looked == 1


async def test_one_that_was_away_and_comes_back_blind_does_not_stop_who_decides_alone(told: Coordinator) -> None:
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        told.answers[HINT] = 503
        assert [await me.decides(after) for after in (0, 100, 900)] == [None] * 3
        assert me.looked == 1
        told.answers[HINT] = unseen("blind")
        await me.decides(30)
        assert me.looked == 2


def test_two_questions_without_advice_are_no_silence() -> None:
    silence = Silence(10.0)
    for poll in range(SILENT_POLLS - 1):
        silence.note(1000.0 * poll, lambda: 0.0)
        assert not silence.is_over(1e6)
    silence.note(1e6, lambda: 0.0)
    assert silence.is_over(1e6)
    assert silence.end() and not silence.is_over(1e6) and not silence.end()


@pytest.mark.parametrize("blind", [False, True])
def test_how_long_a_silence_is_borne_is_drawn_once(blind: bool) -> None:
    """Were it drawn at each question, of many servers each would come to its shortest."""
    silence, drawn = Silence(1_000.0), iter([0.5, 0.0, 0.25])
    assert silence.note(0.0, lambda: next(drawn), blind=blind)
    assert not silence.note(30.0, lambda: next(drawn), blind=blind)
    assert silence.patience_s == 1_500.0
    silence.note(60.0, lambda: next(drawn), blind=blind)
    assert not silence.is_over(1_499.0) and silence.is_over(1_500.0)


async def test_an_arrival_waits_a_little_for_a_lease_that_is_to_be_had(told: Coordinator) -> None:
    told.answers[HINT] = LATER
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                told.answers[HINT] = move(12, 24)

        me.adviser.sleep = sleep
        decision = await me.adviser.arrive()
    assert decision.lease is not None and waited == [5.0, 5.0]


@pytest.mark.parametrize(("lease_after_s", "times"), [(5.0, 12), (61.0, 0), (None, 0), (0.0, 60), (-1.0, 0), (math.nan, 0)])
async def test_and_not_for_ever(told: Coordinator, lease_after_s: float | None, times: int) -> None:
    told.answers[HINT] = {**LATER, "lease_after_s": lease_after_s}
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)
            assert len(waited) <= 60, "a coordinator that says nonsense keeps nobody"

        me.adviser.sleep = sleep
        decision = await me.adviser.arrive()
    assert decision.lease is None and len(waited) == times


@pytest.mark.parametrize(
    ("interval_s", "retry_after_s", "wait_s"),
    [
        (30.0, 30.0, 30.0),
        (30.0, 5.0, 5.0),
        (30.0, 300.0, 300.0),
        (30.0, None, 30.0),
        (2.0, 30.0, 2.0),
        (2.0, 300.0, 300.0),
        (60.0, 30.0, 30.0),
        (30.0, 0.0, 1.0),
        (0.1, 0.0, 0.1),
        (30.0, 1e9, MOST_S),
    ],
)
def test_a_server_asks_again_when_the_coordinator_says_within_bounds(
    interval_s: float, retry_after_s: float | None, wait_s: float
) -> None:
    assert next_question_after(interval_s, retry_after_s) == wait_s


@given(st.floats(0.1, 3600.0), st.floats(allow_nan=False))
def test_no_word_of_a_coordinator_makes_a_server_hurry_or_sleep_without_end(interval_s: float, retry_after_s: float) -> None:
    assert min(interval_s, 1.0) <= next_question_after(interval_s, retry_after_s) <= max(interval_s, MOST_S)


async def test_what_it_loads_and_has_on_its_disk_goes_with_a_question(told: Coordinator) -> None:
    async with HintClient(told.url) as hints:
        me = Situation(hints)
        me.load_s = lambda blocks: 2.5 * blocks
        me.on_disk = (Span(0, 2), Span(4, 30), *(Span(40 + 2 * at, 41 + 2 * at) for at in range(40)))
        await me.adviser.arrive()
        await me.decides()
    (_, arriving), (_, serving) = told.asked
    assert arriving["est_load_s"] == serving["est_load_s"] == 30.0
    assert arriving["on_disk"][:2] == [{"start": 4, "end": 30}, {"start": 0, "end": 2}] and len(arriving["on_disk"]) == 16
    assert serving["on_disk"] == [], "a server moves for what others lack"


async def test_a_server_alone_prefers_what_it_has_on_its_disk() -> None:
    me = Situation(None, model(24, server("a", 0, 24)))
    assert (await me.adviser.arrive()).placement.span == Span(0, 12)
    me.on_disk = (Span(7, 22),)
    assert (await me.adviser.arrive()).placement.span == Span(7, 19)


SHORT = ours(model(16, server("a", 0, 4), server("b", 0, 4), server("d", 4, 8)))


async def decides_alone(name: str, swarm: Model = SHORT) -> Placement | None:
    me = Situation(None, swarm, name)
    for after_s in (0.0, 61.0):
        me.seconds += after_s
        decision = await me.adviser.reconsider("tiny-hf", Span(0, 4))
    return decision.placement if decision else None


async def test_alone_too_a_server_takes_as_many_blocks_as_fit_and_only_one_of_two_goes() -> None:
    """What fits the other one nobody tells it: were that to decide who goes, both would leave their common blocks."""
    found = [await decides_alone(name) for name in "ab"]
    assert [placement.span for placement in found if placement] == [Span(4, 16)]
    enough = replace(SHORT, servers=(*SHORT.servers, server("e", 8, 12)))
    found = [await decides_alone(name, enough) for name in "ab"]
    assert [placement.span for placement in found if placement] == [Span(12, 16)], "no longer than it has to be"
