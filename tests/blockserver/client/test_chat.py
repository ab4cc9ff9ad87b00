"""Conversations over real servers on loopback: turns that build on each other, answers that are stopped, a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.audit import Audit
from blockserver.client.chat import Answer, Conversation, describe, encode_question, encode_turns, make_drafts
from blockserver.client.drafts import PromptLookup
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from blockserver.client.session import Patience
from blockserver.client.terminal import HELP, talk
from swarm.errors import LocalError, MissingBlocks
from swarm.routing import Hop
from swarm.wire.spans import Span
from tests.blockserver.client.test_model import local_tokens
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving
from tests.swarms import peer_id


class Numbers:
    """A tokenizer whose words are the tokens' numbers; 90 to 93 begin and end turns."""

    chat_template = "numbers"

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> dict[str, list[int]]:
        ids: list[int] = []
        for turn in turns:
            begin = 90 if turn["role"] == "user" else 92
            ids += [begin, *map(int, turn["content"].split()), begin + 1]
        return {"input_ids": [*ids, 92]}

    def decode(self, tokens: list[int], **_: Any) -> str:
        return " ".join(map(str, tokens))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    async with AsyncExitStack() as stack:
        spans = (Span(0, 3), Span(3, 6))
        yield [await stack.enter_async_context(serving(tiny[0], span, "tiny", client)) for span in spans]


@pytest_asyncio.fixture(loop_scope="module")
async def made(tiny: tuple[Path, PreTrainedModel], client: P2P, servers: list[Serving]) -> AsyncIterator[Conversation]:
    known = KnownServers([candidate(server) for server in servers])
    patience = Patience(attempts=2, first_pause_s=0.01)
    async with RemoteModel.load(
        tiny[0], client, known.find_route, prefix="tiny", dtype=torch.float32, patience=patience
    ) as model:
        model.stop_ids = frozenset()
        conversation = Conversation(model, Numbers(), Sampling(6), drafts=PromptLookup())
        yield conversation
        await conversation.close()


def words(tokens: list[int]) -> str:
    return " ".join(map(str, tokens))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_second_turn_builds_on_the_first_and_computes_only_what_is_new(
    made: Conversation, servers: list[Serving], tiny: tuple[Path, PreTrainedModel]
) -> None:
    shown: list[str] = []
    first = await made.ask("5 17", shown.append)
    assert "".join(shown) == first.text == words(local_tokens(tiny[1], [90, 5, 17, 91, 92], 6))
    assert [hop.span for hop in first.route] == [Span(0, 3), Span(3, 6)]
    made.drafts = None
    computed = servers[0].engine.spent.tokens
    second = await made.ask("42", shown.append)
    whole = encode_turns(Numbers(), made.turns[:3])
    assert list(second.tokens) == local_tokens(tiny[1], whole, 6)
    # The last token of the first answer, its end, a turn of three and the next beginning; then five of the answer.
    assert servers[0].engine.spent.tokens - computed == 1 + 1 + 3 + 1 + 5
    assert [turn["role"] for turn in made.turns] == ["user", "assistant"] * 2


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stopped_answer_counts_as_far_as_it_was_said(made: Conversation, tiny: tuple[Path, PreTrainedModel]) -> None:
    said = asyncio.Event()

    def show(text: str) -> None:
        if len(text.split()) > 0 and text.strip():
            said.set()

    made.sampling = Sampling(200)
    asking = asyncio.create_task(made.ask("5 17", show))
    await asyncio.wait_for(said.wait(), 60)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert made.turns[-1]["role"] == "assistant"
    assert made.turns[-1]["content"]
    made.sampling = Sampling(4)
    answer = await made.ask("42", lambda text: None)
    assert list(answer.tokens) == local_tokens(tiny[1], encode_turns(Numbers(), made.turns[:-1]), 4)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_conversation_that_outgrows_its_session_goes_on_in_a_longer_one(
    made: Conversation, tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockserver.client.chat.SHORTEST_SESSION", 16)
    await made.ask("5 17", lambda text: None)
    assert made._session is not None and made._session.max_length == 16
    answer = await made.ask("42", lambda text: None)
    assert made._session.max_length == 32
    assert list(answer.tokens) == local_tokens(tiny[1], encode_turns(Numbers(), made.turns[:3]), 6)
    with pytest.raises(LocalError, match="begin a new one"):
        await made.ask(words([7] * 8190), lambda text: None)
    assert len(made.turns) == 4


@pytest.mark.asyncio(loop_scope="module")
async def test_a_terminal_shows_answers_routes_and_what_went_wrong(made: Conversation, servers: list[Serving]) -> None:
    lines = iter(["\n", "/route\n", "5 17\n", "/route\n", "/new\n", "/what\n", "42\n", "7\n", ""])
    shown: list[str] = []
    told: list[str] = []
    made.audit = Audit(0.0)

    loop, engine = asyncio.get_running_loop(), servers[1].engine

    async def lose() -> None:
        servers[1].handler.set_engine(None)

    def read() -> str:
        line = next(lines)
        if line.startswith("7"):
            asyncio.run_coroutine_threadsafe(lose(), loop).result(20)
        return line

    await talk(made, shown.append, told.append, read=read)
    beside = "".join(told)
    assert beside.count(HELP) == 2
    assert "no servers yet" in beside
    assert f"blocks 3–5: {servers[1].peer_id}" in beside
    assert "[6 tokens · first token " in beside and "audited 0 steps" in beside
    assert "sepal: blocks 3–5 have no server that answers since" in beside
    assert "".join(shown).count("\n") == 2
    assert [turn["content"] for turn in made.turns if turn["role"] == "user"] == ["42"]
    servers[1].handler.set_engine(type(engine)(engine.module, 8192))


@pytest.mark.asyncio(loop_scope="module")
async def test_ctrl_c_stops_an_answer_and_not_the_conversation(made: Conversation) -> None:
    lines = iter(["5 17\n", ""])
    told: list[str] = []
    made.sampling = Sampling(500)

    def show(text: str) -> None:
        if text.strip() and not told[-1].startswith("["):
            os.kill(os.getpid(), signal.SIGINT)

    await talk(made, show, told.append, read=lambda: next(lines))
    assert "[stopped]\n" in told
    assert len(made.turns) == 2


@pytest.mark.asyncio(loop_scope="module")
async def test_a_question_that_nobody_can_answer_is_not_part_of_the_conversation(made: Conversation) -> None:
    with pytest.raises(LocalError, match="empty"):
        await made.ask("  ", lambda text: None)
    made.model.router.find_route.__self__.candidates.clear()  # type: ignore[attr-defined]
    with pytest.raises(MissingBlocks):
        await made.ask("5", lambda text: None)
    assert made.turns == []


def test_the_line_under_an_answer_says_the_route_the_speed_and_the_losses() -> None:
    peer = peer_id("a")
    answer = Answer("x", (1, 2), (Hop(peer, Span(0, 3)),), 0.51, 12.34, 1, "audited 3 steps, all agreed")
    assert describe(answer) == (
        f"[2 tokens · first token 0.5 s, then 12.3 tok/s · 0:3 …{peer[-6:]} · went on after losing 1 server(s) · "
        "audited 3 steps, all agreed]"
    )


def test_drafts_are_chosen_by_name(tmp_path: Path) -> None:
    assert make_drafts("none", 96) is None
    assert make_drafts("lookup", 96) == PromptLookup()
    with pytest.raises(LocalError, match="holds no model"):
        make_drafts(str(tmp_path), 96)
    with pytest.raises(LocalError, match="empty"):
        encode_question(Numbers(), " ")
