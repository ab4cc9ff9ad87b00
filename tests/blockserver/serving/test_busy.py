"""A coordinator that has too much to do: a server comes back when it is told to, not with all the others, and does not move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from blockserver.serving.advice import BY_COORDINATOR, BY_ITSELF
from blockserver.serving.hint_client import BUSY_RETRY_S, Busy, CoordinatorDown, HintClient
from blockserver.serving.silence import BLIND_PATIENCE_S
from swarm.wire.hints import HintRequest
from swarm.wire.identity import NONCE_HEADER
from tests.blockserver.coordinators import FRESH, NONCE, STAY, move
from tests.blockserver.serving.test_advice import Situation
from tests.coordinator.signing import signer
from tests.swarms import peer_id

SITE = "http://coordinator.test"
BUSY = httpx.Response(503, headers={"Retry-After": "12"}, json={"type": "/docs/errors/busy", "title": "later"})
QUESTION = HintRequest(peer=peer_id("me"), model="tiny-hf", num_blocks_max=12, num_blocks=12)


class Answers:
    """What comes to each question in turn, the last one for ever; and what was asked."""

    def __init__(self) -> None:
        self.to_come: list[httpx.Response] = [BUSY]
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if request.url.path == NONCE:
            found = httpx.Response(200, json=FRESH)
            return httpx.Response(200, stream=httpx.ByteStream(found.content))
        found = self.to_come.pop(0) if len(self.to_come) > 1 else self.to_come[0]
        return httpx.Response(found.status_code, headers=found.headers, stream=httpx.ByteStream(found.content))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def hints(answers: Answers) -> AsyncIterator[HintClient]:
    async with HintClient(SITE, signer("me")) as client:
        await client._http.aclose()
        client._http = httpx.AsyncClient(base_url=f"{SITE}/api/v1", transport=httpx.MockTransport(answers))
        yield client


async def test_the_answer_says_when_to_ask_again(hints: HintClient) -> None:
    with pytest.raises(Busy) as told:
        await hints.ask(QUESTION)
    assert told.value.retry_after_s == 12.0


@pytest.mark.parametrize("said", ["", "Wed, 21 Oct 2026 07:28:00 GMT", "-5", "99999999", "½"])
async def test_a_time_that_is_none_is_a_usual_one(hints: HintClient, answers: Answers, said: str) -> None:
    answers.to_come = [httpx.Response(429, headers=[(b"Retry-After", said.encode())])]
    with pytest.raises(Busy) as told:
        await hints.ask(QUESTION)
    assert told.value.retry_after_s == BUSY_RETRY_S


@pytest.mark.parametrize("body", [{"json": {"type": "/docs/errors/unavailable"}}, {"content": b"<html>"}, {"json": [1]}])
async def test_a_site_that_is_down_is_not_busy(hints: HintClient, answers: Answers, body: dict[str, Any]) -> None:
    answers.to_come = [httpx.Response(503, headers={"Retry-After": "10"}, **body)]
    with pytest.raises(CoordinatorDown) as told:
        await hints.ask(QUESTION)
    assert not isinstance(told.value, Busy)


async def test_who_was_told_to_come_back_uses_the_nonce_that_it_has(hints: HintClient, answers: Answers) -> None:
    answers.to_come = [BUSY, httpx.Response(200, json=STAY, headers={NONCE_HEADER: "another-nonce-here"})]
    with pytest.raises(Busy):
        await hints.ask(QUESTION)
    assert (await hints.ask(QUESTION)).advice == "stay"
    assert answers.asked == [NONCE, "/api/v1/hint", "/api/v1/hint"]


async def test_each_server_comes_back_at_another_moment(hints: HintClient) -> None:
    me = Situation(hints)
    times = []
    for share in (0.0, 0.25, 0.5):
        me.adviser.jitter = lambda share=share: share  # type: ignore[misc]
        await me.decides()
        times.append(me.adviser.retry_after_s)
    assert times == [12.0, 15.0, 18.0]


async def test_a_serving_server_stays_where_it_is_for_as_long_as_with_one_that_is_blind(
    hints: HintClient, answers: Answers
) -> None:
    me = Situation(hints)
    assert [await me.decides(after) for after in (0, 200, 200, BLIND_PATIENCE_S - 401)] == [None] * 4
    assert me.looked == 0, "it does not even look for itself"
    answers.to_come = [httpx.Response(200, json=STAY)]
    await me.decides(2)
    answers.to_come = [BUSY]
    assert await me.decides(BLIND_PATIENCE_S) is None and me.looked == 0, "the time is counted anew"


async def test_an_arriving_server_waits_and_asks_again(hints: HintClient, answers: Answers) -> None:
    me = Situation(hints)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    me.adviser.sleep = sleep
    answers.to_come = [BUSY, BUSY, httpx.Response(200, json=move(12, 24, "tiny-hf"))]
    decision = await me.adviser.arrive()
    assert (decision.decided_by, slept) == (BY_COORDINATOR, [12.0, 12.0])
    answers.to_come = [BUSY]
    assert (await me.adviser.arrive()).decided_by == BY_ITSELF, "after a minute it serves all the same"
