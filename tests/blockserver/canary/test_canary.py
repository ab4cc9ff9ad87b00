"""The canary: real tokens through real servers, compared with a trusted answer, and told to a site."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserver.canary import run
from blockserver.canary.answers import NEEDED, Expected
from blockserver.canary.run import Canary, Outcome, Varied
from blockserver.client.model import RemoteModel
from blockserver.serving.hint_client import HintClient
from swarm.errors import MissingBlocks
from swarm.routing import Candidate, Route, choose_route
from swarm.wire.identity import Signer
from swarm.wire.spans import Span
from tests.blockserver.coordinators import coordinator
from tests.blockserver.loopback import KnownServers, candidate, loopback_peer, serving
from tests.swarms import peer_id
from tests.tiny_models import BLOCKS, save_tiny_model

SIGNER = Signer.from_seed(b"c" * 32)
GOOD, BAD = (5, 6), (5, 7)


def test_a_configured_answer_is_the_measure_from_the_first_run_on() -> None:
    expected = Expected(GOOD)
    assert [expected.judge(answer) for answer in (GOOD, BAD, BAD)] == ["expected", "unexpected", "unexpected"]
    assert expected.trusted_by == "configured"


def test_without_one_the_answer_of_most_runs_counts_once_there_are_enough() -> None:
    expected = Expected()
    assert [expected.judge(GOOD) for _ in range(NEEDED)] == [None] * (NEEDED - 1) + ["expected"]
    assert expected.judge(BAD) == "unexpected" and expected.trusted_by == "majority"


def test_where_most_do_not_agree_nothing_is_said() -> None:
    expected = Expected()
    assert [expected.judge((n,)) for n in range(6)] == [None] * 6


@given(st.lists(st.sampled_from([GOOD, BAD]), min_size=NEEDED, max_size=60))
def test_an_answer_is_expected_only_where_more_than_half_of_the_last_ones_are_alike(answers: list[tuple[int, int]]) -> None:
    expected = Expected()
    verdicts = [expected.judge(answer) for answer in answers]
    last = answers[-21:]
    same = last.count(answers[-1])
    wanted = "expected" if 2 * same > len(last) else None if 2 * same == len(last) else "unexpected"
    assert verdicts[-1] == wanted


async def told(outcome: Outcome, expected: Expected) -> tuple[object, list[tuple[str, dict[str, object]]]]:
    with coordinator() as site:
        site.answers["/api/v1/report"] = {"counted": 0, "canary_counted": True}

        async def generate() -> Outcome:
            return outcome

        async with HintClient(site.url, SIGNER) as client:
            report = await Canary("tiny-hf", SIGNER.peer_id, generate, expected, client).run_once()
        return report, site.asked


async def test_an_expected_answer_is_told_with_its_route() -> None:
    route = (peer_id("a"), peer_id("b"))
    _, asked = await told(Outcome(GOOD, route, 1.5), Expected(GOOD))
    ((path, body),) = asked
    assert path == "/api/v1/report" and body["peer"] == SIGNER.peer_id
    canary = body["canary"]
    assert isinstance(canary, dict)
    assert (canary["outcome"], canary["servers"], canary["trusted_by"]) == ("expected", list(route), "configured")


async def test_a_wrong_answer_is_told_and_nobody_in_particular_is_blamed() -> None:
    _, asked = await told(Outcome(BAD, (peer_id("a"),), 1.5), Expected(GOOD))
    assert asked[0][1]["servers"] == [] and asked[0][1]["canary"]["outcome"] == "unexpected"  # type: ignore[index]


async def test_a_run_that_failed_says_why_and_a_site_that_is_away_stops_nothing() -> None:
    report, asked = await told(Outcome(None, (), 3.0, "block 2 has no server"), Expected())
    assert asked[0][1]["canary"]["detail"] == "block 2 has no server"  # type: ignore[index]

    async def generate() -> Outcome:
        return Outcome(GOOD, (), 1.0)

    async with HintClient("http://127.0.0.1:9", SIGNER) as away:
        after = await Canary("tiny-hf", SIGNER.peer_id, generate, Expected(GOOD), away).run_once()
    assert after is not None and after.outcome == "expected" and report is not None


async def test_the_next_run_goes_round_the_servers_of_the_last_where_it_can() -> None:
    servers = [Candidate("a", Span(0, 3)), Candidate("b", Span(0, 3)), Candidate("only", Span(3, 6))]

    async def find(span: Span, avoid: Collection[str]) -> Route:
        return choose_route(servers, span, avoid)

    varied = Varied(find)
    first = [hop.peer_id for hop in await varied(Span(0, 6), ())]
    varied.last = frozenset(first)
    second = [hop.peer_id for hop in await varied(Span(0, 6), ())]
    assert {first[0], second[0]} == {"a", "b"} and first[1] == second[1] == "only"
    with pytest.raises(MissingBlocks):
        await varied(Span(0, 6), ("a", "b"))


async def test_real_servers_answer_alike_over_different_routes(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    client = await loopback_peer()
    try:
        async with (
            serving(tmp_path, Span(0, BLOCKS), "tiny-hf", client) as one,
            serving(tmp_path, Span(0, BLOCKS), "tiny-hf", client) as other,
        ):
            varied = Varied(KnownServers([candidate(one), candidate(other)]).find_route)
            async with RemoteModel.load(tmp_path, client, varied, prefix="tiny-hf", patience=run.PATIENCE) as model:
                first = await run.generate(model, [1, 5, 9], 3, varied)
                second = await run.generate(model, [1, 5, 9], 3, varied)
            assert first.answer is not None and first.answer == second.answer
            assert {first.peers, second.peers} == {(one.peer_id,), (other.peer_id,)}
    finally:
        await client.shutdown()


async def test_a_swarm_without_servers_is_a_failed_run(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    client = await loopback_peer()
    try:
        varied = Varied(KnownServers([]).find_route)
        async with RemoteModel.load(tmp_path, client, varied, prefix="tiny-hf", patience=run.PATIENCE) as model:
            outcome = await asyncio.wait_for(run.generate(model, [1], 1, varied), 60)
        assert outcome.answer is None and "no server" in outcome.fault
    finally:
        await client.shutdown()


async def test_a_run_under_way_does_not_hold_up_who_stops_the_canary() -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.ensure_future(run._unless_stopped(endless(), stop))
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(waiting, 60) is None
    await asyncio.wait_for(ended.wait(), 60)
