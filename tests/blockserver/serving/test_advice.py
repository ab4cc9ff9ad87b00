"""A server decides by itself while the coordinator is silent, by the same planner, and not on a single look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from blockserver.serving.advice import BY_COORDINATOR, BY_ITSELF, Adviser, Candidate
from blockserver.serving.hint_client import CoordinatorDown, HintClient
from swarm.placement import Pace
from swarm.snapshot import Model
from swarm.wire.hints import HintRequest
from swarm.wire.spans import Span
from tests.blockserver.coordinators import coordinator, move
from tests.swarms import model, ours, peer_id, server

WHOLE = ours(model(30, server("a", 0, 12), server("b", 12, 24), server("c", 18, 30), server("me", 0, 12, throughput=9.0)))
HOLED = replace(WHOLE, servers=tuple(s for s in WHOLE.servers if s.peer_id != peer_id("b")))


class Situation:
    """One server's surroundings: what it sees in the DHT, and the time."""

    def __init__(self, hints: HintClient | None, seen: Model = HOLED, me: str = "me") -> None:
        self.seen = seen
        self.seconds = 0.0
        self.looked = 0
        self.pace: Pace | None = None
        self.load_s: Callable[[int], float | None] = lambda _: None
        self.on_disk: tuple[Span, ...] = ()
        self.adviser = Adviser(
            peer_id=peer_id(me),
            candidates=(
                Candidate(
                    "tiny-hf",
                    12,
                    seen.num_blocks,
                    self._view,
                    lambda: self.pace,
                    lambda blocks: self.load_s(blocks),
                    lambda: self.on_disk,
                ),
            ),
            hints=hints,
            fallback_after_s=180.0,
            confirm_s=60.0,
            clock=lambda: self.seconds,
            jitter=lambda: 0.0,
        )

    async def _view(self) -> Model:
        self.looked += 1
        return self.seen

    async def decides(self, after_s: float = 0.0) -> Span | None:
        self.seconds += after_s
        decision = await self.adviser.reconsider("tiny-hf", Span(0, 12))
        return decision.placement.span if decision else None


async def test_without_a_coordinator_an_arrival_takes_the_weakest_blocks() -> None:
    decision = await Situation(None).adviser.arrive()
    assert decision.decided_by == BY_ITSELF
    assert decision.placement.span.covers(Span(12, 18))


async def test_a_hole_found_alone_must_last_before_the_server_moves() -> None:
    me = Situation(None)
    assert await me.decides() is None
    assert await me.decides(59) is None
    moved_to = await me.decides(2)
    assert moved_to is not None
    assert moved_to.covers(Span(12, 18))


async def test_a_hole_that_closes_meanwhile_is_forgotten() -> None:
    me = Situation(None)
    assert await me.decides() is None
    me.seen = WHOLE
    assert await me.decides(59) is None
    me.seen = HOLED
    assert await me.decides(2) is None


async def test_views_that_contradict_each_other_move_nobody_and_three_that_agree_move_once() -> None:
    """petals#389: one evening a server was sent to 65 and then told that 2 is right. Each view alone would have moved it."""
    elsewhere = ours(
        model(30, server("a", 0, 12), server("b", 12, 24), server("c", 12, 24), server("me", 0, 12, throughput=9.0))
    )
    me = Situation(None)
    for view in (HOLED, elsewhere, HOLED, elsewhere):
        me.seen = view
        assert await me.decides(59) is None
    me.seen = HOLED
    assert [await me.decides(after) for after in (0, 30, 29)] == [None] * 3
    assert await me.decides(2) is not None


async def test_a_key_that_could_not_be_read_moves_nobody() -> None:
    me = Situation(None, replace(HOLED, unread_blocks=frozenset({3})))
    assert [await me.decides(after) for after in (0, 100, 1000)] == [None] * 3


async def test_a_server_waits_for_its_better_placed_neighbour_and_moves_when_that_one_does_not() -> None:
    """The slower of two redundant servers is the planner's choice; it may be one that does not follow the rule."""
    other = Situation(None, me="a")
    assert [await other.decides(after) for after in (0, 61, 58)] == [None] * 3
    assert await other.decides(2) is not None


async def test_the_coordinators_lease_is_followed() -> None:
    with coordinator() as told:
        told.answers["/api/v1/hint"] = move(12, 24)
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            decision = await me.adviser.reconsider("tiny-hf", Span(0, 12), sessions_active=2)
        assert decision is not None
        assert (decision.placement.span, decision.decided_by) == (Span(12, 24), BY_COORDINATOR)
        path, asked = told.asked[0]
        assert path == "/api/v1/hint"
        assert asked["current"] == {"start": 0, "end": 12}
        assert asked["sessions_active"] == 2


async def test_while_the_coordinator_advises_to_stay_the_server_does_not_decide_alone() -> None:
    with coordinator() as told:
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            assert [await me.decides(after) for after in (0, 500, 500)] == [None] * 3


async def test_a_silent_coordinator_is_waited_for_and_then_the_server_decides_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with coordinator() as told:
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            told.answers["/api/v1/hint"] = 503
            assert [await me.decides(after) for after in (0, 179)] == [None] * 2
            assert await me.decides(2) is None
            assert await me.decides(61) is not None
            assert "HTTP 503" in caplog.text
            assert "deciding by itself" in caplog.text
            told.answers["/api/v1/hint"] = move(12, 24)
            assert await me.decides(1) == Span(12, 24)
            assert "advises again" in caplog.text


@pytest.mark.parametrize(("drawn", "looks_after"), [(0.0, 180.0), (0.5, 270.0)])
async def test_servers_that_lost_one_coordinator_do_not_all_decide_in_the_same_second(drawn: float, looks_after: float) -> None:
    with coordinator() as told:
        told.answers["/api/v1/hint"] = 503
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            me.adviser.jitter = lambda: drawn
            assert [await me.decides(after) for after in (0, 1, looks_after - 2)] == [None] * 3
            assert me.looked == 0
            assert await me.decides(1) is None
            assert me.looked == 1
            assert await me.decides(61) is not None


async def test_a_long_pause_between_two_polls_is_no_silence_of_three() -> None:
    with coordinator() as told:
        told.answers["/api/v1/hint"] = 503
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            assert [await me.decides(after) for after in (0, 10_000)] == [None] * 2
            assert me.looked == 0
            await me.decides(1)
            assert me.looked == 1


async def test_an_arrival_does_not_wait_for_a_coordinator_that_is_down() -> None:
    with coordinator() as told:
        url = told.url
    async with HintClient(url) as hints:
        decision = await Situation(hints).adviser.arrive()
    assert decision.decided_by == BY_ITSELF


@pytest.mark.parametrize("answer", [404, 500, b"<html>", {"advice": "dance"}, {**move(12, 24), "lease": {"start": 5}}, []])
async def test_an_answer_that_is_no_hint_counts_as_no_answer(answer: object) -> None:
    question = HintRequest(peer=peer_id("me"), model="tiny-hf", num_blocks_max=3, num_blocks=3)
    with coordinator() as told:
        told.answers["/api/v1/hint"] = answer
        async with HintClient(told.url) as hints:
            with pytest.raises(CoordinatorDown):
                await hints.ask(question)


async def test_what_a_server_knows_of_its_speed_goes_with_its_question_and_into_its_own_choice() -> None:
    with coordinator() as site:
        async with HintClient(site.url) as hints:
            me = Situation(hints)
            me.pace = Pace(120.0, 40.0)
            await me.decides()
    ((_, asked),) = site.asked
    assert (asked["forward_rps"], asked["network_rps"]) == (120.0, 40.0)
    uneven = model(8, *(server(f"a{n}", 0, 4) for n in range(5)), *(server(f"b{n}", 4, 8) for n in range(2)))
    alone = Situation(None, uneven)
    alone.adviser.num_blocks = 8
    assert (await alone.adviser.arrive()).placement.span == Span(0, 8)
    alone.pace = Pace(20.0)
    assert (await alone.adviser.arrive()).placement.span == Span(4, 8), "with half of its blocks it is twice as fast"
