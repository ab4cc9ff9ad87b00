"""What happens in the middle of an answer: servers die, callers leave, many come at once, the gateway is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.gateway.turns import Turns
from swarm.routing import Candidate
from swarm.wire.spans import Span
from tests.blockserver.gateway.conftest import MONITOR, NAME, Running, gateway, three_servers
from tests.blockserver.living import eventually
from tests.blockserver.loopback import Serving
from tests.swarms import peer_id

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY: dict[str, Any] = {"model": NAME, "messages": HELLO, "temperature": 0}
LONG = 900

Speaking = tuple[Path, PreTrainedModel]


@pytest_asyncio.fixture(loop_scope="module")
async def mortal(speaking: Speaking, client: P2P) -> AsyncIterator[list[Serving]]:
    """Servers for a test that kills some."""
    async with three_servers(speaking[0], client) as servers:
        yield servers


async def dies(server: Serving) -> None:
    """As by kill -9: its connections break off."""
    await server.p2p.shutdown()


async def at_each(stream: Any, do: Callable[[], object]) -> None:
    async for _ in stream:
        do()


def sessions(servers: list[Serving]) -> int:
    return sum(server.handler.sessions_active for server in servers)


async def test_a_server_that_dies_in_a_stream_is_replaced_and_the_text_goes_on(
    speaking: Speaking, client: P2P, mortal: list[Serving]
) -> None:
    async with gateway(speaking, client, mortal) as running:
        stream = await running.client().chat.completions.create(**GREEDY, max_tokens=40, stream=True)
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 5:
                await dies(mortal[1])
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert said == running.local_text(HELLO, 40)
        assert [hop["peer"] for hop in chunks[0].sepal["route"]] == [mortal[0].peer_id, mortal[1].peer_id]  # type: ignore[attr-defined]
        last = chunks[-1].sepal  # type: ignore[attr-defined]
        assert [hop["peer"] for hop in last["route"]] == [mortal[0].peer_id, mortal[2].peer_id] and last["recoveries"] == 1


async def test_where_nobody_can_take_over_the_stream_ends_with_an_error_that_names_the_blocks(
    speaking: Speaking, client: P2P, mortal: list[Serving]
) -> None:
    async with gateway(speaking, client, mortal) as running:
        stream = await running.client().chat.completions.create(**GREEDY, max_tokens=LONG, stream=True)
        seen = 0

        async def read() -> None:
            nonlocal seen
            async for _ in stream:
                seen += 1
                if seen == 5:
                    running.known.candidates = running.known.candidates[:1]
                    await dies(mortal[1])

        with pytest.raises(openai.APIError, match=rf"blocks 3–5 have no server since .* UTC; see {MONITOR}") as broken:
            await read()
        assert seen >= 5
        assert broken.value.body["code"] == "swarm_incomplete"  # type: ignore[index]
        await eventually(lambda: not sessions(mortal[:1]))


async def test_a_server_that_falls_silent_ends_the_stream_with_an_error_in_time(
    speaking: Speaking, client: P2P, mortal: list[Serving]
) -> None:
    async with gateway(speaking, client, mortal, quiet_s=0.3) as running:
        stream = await running.client().chat.completions.create(**GREEDY, max_tokens=LONG, stream=True)
        frozen = mortal[1].p2p._child.pid
        try:
            with pytest.raises(openai.APIError, match="no server gave the next token within 0"):
                await at_each(stream, lambda: os.kill(frozen, signal.SIGSTOP))
            await eventually(lambda: not sessions(mortal[:1]))
        finally:
            os.kill(frozen, signal.SIGCONT)


async def test_a_missing_block_is_a_503_that_says_which_since_when_and_where_to_look(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    async with gateway(speaking, client, lasting[:1]) as running:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as refused:
                await running.client().chat.completions.create(**GREEDY, stream=stream)
            error = refused.value
            assert (error.status_code, error.code) == (503, "swarm_incomplete")
            assert "blocks 3–5 have no server since " in error.message and error.message.count(MONITOR) == 1
            assert int(error.response.headers["Retry-After"]) > 0
        (model,) = (await running.client().models.list()).data
        assert model.sepal["missing_blocks"] == [3, 4, 5]  # type: ignore[attr-defined]


async def test_servers_that_only_seem_to_be_there_are_a_503_without_anybodys_address(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    async with gateway(speaking, client, lasting[:1]) as running:
        running.known.candidates.append(Candidate(peer_id("ghost"), Span(3, 6)))
        with pytest.raises(openai.InternalServerError) as refused:
            await running.client().chat.completions.create(**GREEDY)
        assert refused.value.status_code == 503
        assert refused.value.code in ("servers_failed", "swarm_incomplete")
        assert "/ip4/" not in refused.value.message and "127.0.0.1" not in refused.value.message


async def test_the_sdk_repeats_what_may_work_later_and_nothing_else(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    counted: list[int] = []

    async def count(response: Any) -> None:
        counted.append(response.status_code)

    async with gateway(speaking, client, lasting[:1]) as running:
        asked = running.client(max_retries=1)
        asked._client.event_hooks["response"] = [count]
        asked._calculate_retry_timeout = lambda *_: 0.0  # type: ignore[method-assign]
        with pytest.raises(openai.InternalServerError):
            await asked.chat.completions.create(**GREEDY)
        with pytest.raises(openai.NotFoundError):
            await asked.chat.completions.create(**{**GREEDY, "model": "x"})
        with pytest.raises(openai.BadRequestError):
            await asked.chat.completions.create(**GREEDY, n=2)
    assert counted == [503, 503, 404, 400]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_leaves_frees_its_sessions(running: Running, lasting: list[Serving], stream: bool) -> None:
    before = gone(running)
    async with httpx.AsyncClient(timeout=60) as caller:
        body = {**GREEDY, "max_tokens": LONG, "stream": stream}
        asking = asyncio.create_task(caller.post(f"{running.url}/v1/chat/completions", json=body))
        await eventually(lambda: sessions(lasting) == 2)
        asking.cancel()
    await eventually(lambda: not sessions(lasting), within_s=60)
    await eventually(lambda: gone(running) == before + 1 and not running.studio.under_way)
    assert running.studio.turns.running == 0


def gone(running: Running) -> float:
    value = running.studio.metrics.registry.get_sample_value("sepal_gateway_requests_total", {"outcome": "gone"})
    assert value is not None
    return value


async def test_a_caller_that_leaves_while_waiting_gives_its_place_up(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    turns = Turns(1, 4, 4)
    async with gateway(speaking, client, lasting, turns) as running:
        url = f"{running.url}/v1/chat/completions"
        async with turns.turn("somebody"), httpx.AsyncClient(timeout=60) as caller:
            asking = asyncio.create_task(caller.post(url, json={**GREEDY, "stream": True}))
            await eventually(lambda: turns.waiting == 1)
            asking.cancel()
            await eventually(lambda: turns.waiting == 0)


async def test_who_comes_when_the_queue_is_full_is_told_so(speaking: Speaking, client: P2P, lasting: list[Serving]) -> None:
    turns = Turns(1, 2, 1)
    proxied = {"X-Forwarded-For": "198.51.100.7"}
    async with gateway(speaking, client, lasting, turns, proxies=("127.0.0.0/8",)) as running:
        async with turns.turn("somebody"):
            waiting = [
                asyncio.create_task(running.client().chat.completions.create(**GREEDY, max_tokens=1)),
                asyncio.create_task(running.client(default_headers=proxied).chat.completions.create(**GREEDY, max_tokens=1)),
            ]
            await eventually(lambda: turns.waiting == 2)
            with pytest.raises(openai.RateLimitError, match="1 of your requests wait already") as yours:
                await running.client().chat.completions.create(**GREEDY)
            with pytest.raises(openai.InternalServerError, match="this gateway is full: 2 requests wait") as full:
                await running.client(default_headers={"X-Forwarded-For": "2001:db8::/64"}).chat.completions.create(**GREEDY)
            assert yours.value.code == "rate_limit_exceeded" and full.value.code == "gateway_full"
            assert int(yours.value.response.headers["Retry-After"]) > 0 < int(full.value.response.headers["Retry-After"])
        assert all(answer.choices for answer in await asyncio.gather(*waiting))


async def test_who_has_waited_long_enough_is_told_so(speaking: Speaking, client: P2P, lasting: list[Serving]) -> None:
    turns = Turns(1, 2, 2)
    async with gateway(speaking, client, lasting, turns, wait_s=0.05) as running:
        async with turns.turn("somebody"):
            with pytest.raises(openai.InternalServerError, match="full"):
                await running.client().chat.completions.create(**GREEDY)


async def test_who_asks_for_progress_hears_how_many_come_before(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    turns = Turns(1, 4, 4)
    async with gateway(speaking, client, lasting, turns) as running:
        asked = {**GREEDY, "max_tokens": 2, "stream": True, "sepal": {"progress": True}}
        async with httpx.AsyncClient(timeout=60) as caller:
            async with turns.turn("somebody"):
                sent = caller.build_request("POST", f"{running.url}/v1/chat/completions", json=asked)
                answer = await caller.send(sent, stream=True)
                lines = answer.aiter_lines()
                first = json.loads((await anext(lines)).removeprefix("data: "))
            assert (first["choices"], first["sepal"]) == ([], {"waiting_before": 0})
            rest = [line async for line in lines if line]
            assert rest[-1] == "data: [DONE]"


async def test_a_gateway_with_keys_answers_only_those_who_have_one(
    speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    async with gateway(speaking, client, lasting, keys=("first", "second")) as running:
        with pytest.raises(openai.AuthenticationError) as refused:
            await running.client(api_key="guessed").models.list()
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            await running.client(api_key="guessed").chat.completions.create(**GREEDY)
        assert (await running.client(api_key="second").models.list()).data
        async with httpx.AsyncClient(base_url=running.url, timeout=60) as caller:
            assert (await caller.get("/livez")).status_code == 200
            assert (await caller.post("/v1/sepal/logit_lens", json={})).status_code == 401


async def test_a_gateway_that_is_stopped_tells_its_streams(speaking: Speaking, client: P2P, lasting: list[Serving]) -> None:
    async with gateway(speaking, client, lasting) as running:
        stream = await running.client().chat.completions.create(**GREEDY, max_tokens=LONG, stream=True)
        with pytest.raises(openai.APIError, match="being stopped"):
            await at_each(stream, running.stop.set)
        await eventually(lambda: not sessions(lasting))


async def test_many_at_once_each_get_their_own_text(speaking: Speaking, client: P2P, lasting: list[Serving]) -> None:
    async with gateway(speaking, client, lasting, Turns(4, 64, 64)) as running:

        async def ask(number: int) -> tuple[str | None, str]:
            messages = [{"role": "user", "content": f"Number {number}"}]
            answer = await running.client().chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=8)  # type: ignore[arg-type]
            return answer.choices[0].message.content, running.local_text(messages, 8)

        for said, expected in await asyncio.gather(*map(ask, range(12))):
            assert said == expected


async def test_a_lens_ends_with_what_the_model_says(running: Running, lasting: list[Serving]) -> None:
    prompt = running.voice.tokenizer("u:Hello\na:")["input_ids"]
    async with httpx.AsyncClient(timeout=60) as caller:
        answer = await caller.post(f"{running.url}/v1/sepal/logit_lens", json={"model": NAME, "messages": HELLO, "top": 3})
    said = answer.json()
    assert [row["blocks"] for row in said["rows"]] == list(range(7))
    assert [row["peer"] for row in said["rows"]] == [None] + [lasting[0].peer_id] * 3 + [lasting[1].peer_id] * 3
    assert said["rows"][-1]["top"][0]["token"] == running.local_tokens(prompt, 1)[0]
    assert said["tokens"] == len(prompt)
    for row in said["rows"]:
        chances = [guess["probability"] for guess in row["top"]]
        assert len(chances) == 3 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1
    await eventually(lambda: not sessions(lasting))


async def test_a_lens_that_cannot_be_is_refused(
    running: Running, speaking: Speaking, client: P2P, lasting: list[Serving]
) -> None:
    url = f"{running.url}/v1/sepal/logit_lens"
    async with httpx.AsyncClient(timeout=60) as caller:
        for body, words in (
            ({"model": NAME}, "either messages or prompt"),
            ({"model": NAME, "prompt": "x", "top": 21}, "top"),
            ({"model": NAME, "prompt": "x" * 600}, "at most 512 tokens"),
        ):
            answer = await caller.post(url, json=body)
            assert answer.status_code == 400 and words in answer.json()["error"]["message"]
        async with gateway(speaking, client, lasting[:1]) as holed:
            answer = await caller.post(f"{holed.url}/v1/sepal/logit_lens", json={"model": NAME, "prompt": "x"})
        assert answer.status_code == 503 and "block 3 has no server since" in answer.json()["error"]["message"]
