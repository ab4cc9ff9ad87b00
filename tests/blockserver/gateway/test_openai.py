"""OpenAI's own package, unmodified, against the gateway: answers, streams, limits and errors are what it expects."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from blockserver.gateway.config import MAX_BODY
from blockserver.gateway.manner import Manner
from tests.blockserver.gateway.conftest import NAME, PREFIX, Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY: dict[str, Any] = {"model": NAME, "messages": HELLO, "temperature": 0, "max_tokens": 24}


async def streamed(running: Running, **more: Any) -> list[Any]:
    stream = await running.client().chat.completions.create(**{**GREEDY, "stream": True, **more})
    return [chunk async for chunk in stream]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_models_are_listed_and_found_by_name_and_by_prefix(running: Running) -> None:
    client = running.client()
    (listed,) = (await client.models.list()).data
    assert (listed.id, listed.owned_by) == (NAME, "swarm")
    assert (await client.models.retrieve(NAME)).id == NAME
    assert listed.sepal["num_blocks"] == 6 and listed.sepal["prefix"] == PREFIX


async def test_a_plain_answer_is_the_whole_models(running: Running) -> None:
    answer = await running.client().chat.completions.create(**GREEDY)
    (choice,) = answer.choices
    assert choice.message.content == running.local_text(HELLO, 24)
    assert (choice.message.role, choice.finish_reason, answer.object) == ("assistant", "length", "chat.completion")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len("u:Hello\na:"), 24)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


async def test_a_streamed_answer_is_the_plain_one_in_pieces_without_half_characters(running: Running) -> None:
    chunks = await streamed(running)
    assert text_of(chunks) == running.local_text(HELLO, 24)
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_comes_in_a_last_chunk_without_choices_where_it_is_asked_for(running: Running) -> None:
    chunks = await streamed(running, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 24
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]


async def test_a_stream_ends_with_done(running: Running) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{running.url}/v1/chat/completions", json={**GREEDY, "stream": True, "max_tokens": 3})
    lines = [line for line in answer.text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line.removeprefix("data: "))["choices"] for line in lines[:-1])
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_first_and_last_chunk_and_plain_answers_say_who_answered(running: Running, lasting: Any) -> None:
    expected = [{"peer": lasting[0].peer_id, "blocks": "0-2"}, {"peer": lasting[1].peer_id, "blocks": "3-5"}]
    chunks = await streamed(running)
    for chunk in (chunks[0], chunks[-1]):
        assert chunk.sepal["route"] == expected and chunk.sepal["recoveries"] == 0
    assert chunks[0].sepal["tokens_per_second"] is None and chunks[-1].sepal["tokens_per_second"] > 0
    assert all("sepal" not in (chunk.model_extra or {}) for chunk in chunks[1:-1])
    plain = await running.client().chat.completions.create(**GREEDY)
    assert plain.sepal["route"] == expected  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_before_a_stop_text_that_lies_across_tokens(running: Running, stream: bool) -> None:
    whole = running.local_text(HELLO, 24)
    stop = whole[9:12]
    assert len(stop.encode()) > 1
    expected = whole[: whole.index(stop)]
    if stream:
        chunks = await streamed(running, stop=[stop, "never said"])
        said, reason = text_of(chunks), chunks[-1].choices[0].finish_reason
    else:
        answer = await running.client().chat.completions.create(**GREEDY, stop=stop)
        said, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (said, reason) == (expected, "stop")


async def test_the_models_own_end_is_a_stop(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = running.voice.tokenizer("u:Hello\na:")["input_ids"]
    tokens = running.local_tokens(prompt, 24)
    monkeypatch.setattr(running.voice.model, "stop_ids", frozenset({tokens[5]}))
    answer = await running.client().chat.completions.create(**GREEDY)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == running.voice.decode(tokens[: tokens.index(tokens[5])])


async def test_max_completion_tokens_is_max_tokens(running: Running) -> None:
    asked = {**GREEDY, "max_tokens": None, "max_completion_tokens": 7}
    answer = await running.client().chat.completions.create(**asked)
    assert answer.usage is not None and answer.usage.completion_tokens == 7


async def test_a_seed_gives_the_same_text_again_and_another_one_does_not(running: Running) -> None:
    async def drawn(seed: int) -> str | None:
        asked = {**GREEDY, "temperature": 1.5, "top_p": 0.95, "seed": seed}
        return (await running.client().chat.completions.create(**asked)).choices[0].message.content

    assert await drawn(7) == await drawn(7) != await drawn(8)


async def test_where_a_request_does_not_say_the_model_speaks_as_it_was_set_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.voice, "manner", Manner(temperature=1.5, top_k=1))
    silent = {name: value for name, value in GREEDY.items() if name != "temperature"}
    answer = await running.client().chat.completions.create(**silent)
    assert answer.choices[0].message.content == running.local_text(HELLO, 24), "the likeliest of one token is the likeliest"


async def test_plain_completions_go_on_from_text_and_from_tokens(running: Running) -> None:
    ids = running.voice.tokenizer("Once")["input_ids"]
    expected = running.voice.decode(running.local_tokens(ids, 16))
    client = running.client()
    for prompt in ("Once", ["Once"], ids, [ids]):
        answer = await client.completions.create(model=PREFIX, prompt=prompt, temperature=0)
        assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
            "text_completion",
            expected,
            "length",
        )
    stream = await client.completions.create(model=NAME, prompt="Once", temperature=0, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == expected


async def test_parts_of_text_and_the_developers_words_are_understood(running: Running) -> None:
    parts = [{"role": "developer", "content": "Be kind"}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    answer = await running.client().chat.completions.create(**{**GREEDY, "messages": parts})
    same = [{"role": "system", "content": "Be kind"}, *HELLO]
    assert answer.choices[0].message.content == running.local_text(same, 24)


REFUSED = [
    ({"n": 2}, "n", "only n=1"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "not served"),
    ({"logprobs": True}, "logprobs", "not served"),
    ({"response_format": {"type": "json_object"}}, "response_format", "not served"),
    ({"frequency_penalty": 0.5}, "frequency_penalty", "not served"),
    ({"temperature": 3}, "temperature", "less than or equal to 2"),
    ({"top_p": 0}, "top_p", "greater than 0"),
    ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    ({"max_tokens": 4, "max_completion_tokens": 5}, "max_completion_tokens", "differ"),
    ({"messages": []}, "messages", "at least 1"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages", "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages", "only text is served"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "at most 4"),
    ({"stop": [""]}, "stop", "1 to 256"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"max_tokens": 5_000}, "messages", "this model holds 1,024 tokens here"),
    ({"messages": [{"role": "user", "content": "long " * 400}]}, "messages", "this model holds 1,024 tokens here"),
]


@pytest.mark.parametrize(
    ("more", "param", "words"), REFUSED, ids=[f"{sorted(more)[-1]}-{n}" for n, (more, *_) in enumerate(REFUSED)]
)
async def test_what_cannot_be_done_is_a_bad_request_that_names_the_field(
    running: Running, more: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await running.client().chat.completions.create(**{**GREEDY, **more})
    assert refused.value.param == param and words in refused.value.message
    assert refused.value.type == "invalid_request_error" and refused.value.code


async def test_a_prompt_that_is_too_long_has_openais_own_code(running: Running) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await running.client().chat.completions.create(**{**GREEDY, "max_tokens": 1_020})
    assert refused.value.code == "context_length_exceeded"


async def test_fields_that_ask_for_nothing_are_no_fault(running: Running) -> None:
    asked = {
        **GREEDY,
        "n": 1,
        "tools": [],
        "presence_penalty": 0,
        "logit_bias": {},
        "user": "me",
        "response_format": {"type": "text"},
    }
    assert (await running.client().chat.completions.create(**asked)).choices


@pytest.mark.parametrize("prompt", [[], "", ["a", "b"], [[1], [2]], [10_000]])
async def test_prompts_that_cannot_be_answered_are_refused(running: Running, prompt: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await running.client().completions.create(model=NAME, prompt=prompt)
    assert refused.value.param == "prompt"


async def test_an_unknown_model_is_not_found(running: Running) -> None:
    for asked in ("gpt-4o", "speaking\n"):
        with pytest.raises(openai.NotFoundError) as refused:
            await running.client().chat.completions.create(**{**GREEDY, "model": asked})
        assert refused.value.code == "model_not_found" and "serves speaking" in refused.value.message
    with pytest.raises(openai.NotFoundError):
        await running.client().models.retrieve("gpt-4o")


async def test_what_is_no_request_is_refused_in_the_same_shape(running: Running) -> None:
    json_type = {"Content-Type": "application/json"}
    chat = f"{running.url}/v1/chat/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        answers = [
            (await client.post(chat, content=b"{", headers=json_type), 400, "invalid_json"),
            (await client.post(chat, content=b"[" * 100_000, headers=json_type), 400, "invalid_json"),
            (await client.post(chat, content=b"[]", headers=json_type), 400, "invalid_json"),
            (await client.post(chat, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type"),
            (await client.post(chat, content=b" " * (MAX_BODY + 1), headers=json_type), 413, "request_too_large"),
            (await client.get(chat), 405, "unknown_url"),
            (await client.get(f"{running.url}/v1/embeddings"), 404, "unknown_url"),
        ]
    for answer, status, code in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_health_and_metrics(running: Running) -> None:
    await running.client().chat.completions.create(**GREEDY)
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        assert (await client.get("/livez")).text == "ok\n"
        running.studio.sight.looked([], 0.0)
        assert (await client.get("/readyz")).text == "[+]swarm ok\n[+]blocks ok\n"
        running.studio.sight.looked([4], 1_800_000_000.0)
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.text.splitlines()[1]) == (
            503,
            "[-]blocks block 4 has no server since 08:00 UTC; see http://monitor.test/m/speaking",
        )
        running.studio.sight.looked([], 0.0)
        page = (await client.get("/metrics")).text
    families = list(text_string_to_metric_families(page))
    assert families and all(family.name.startswith("sepal_gateway_") and family.documentation for family in families)
    assert 'sepal_gateway_requests_total{outcome="answered"}' in page
    assert "sepal_gateway_sessions 0.0" in page and "sepal_gateway_running 0.0" in page
