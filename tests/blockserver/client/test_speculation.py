"""Guesses make generation take fewer steps and change nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.drafts import SmallModel
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.blockserver.client.test_model import local_tokens
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = [5, 17, 42, 8]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    async with serving(tiny[0], Span(0, 3), "tiny", client) as first, serving(tiny[0], Span(3, 6), "tiny", client) as last:
        await last.meet(first.p2p)
        yield [first, last]


@pytest_asyncio.fixture(loop_scope="module")
async def model(tiny: tuple[Path, PreTrainedModel], client: P2P, pair: list[Serving]) -> AsyncIterator[RemoteModel]:
    known = KnownServers([candidate(server) for server in pair])
    async with RemoteModel.load(tiny[0], client, known.find_route, prefix="tiny", dtype=torch.float32) as loaded:
        loaded.stop_ids = frozenset()
        yield loaded


class Oracle:
    """Guesses what is to come, with every `wrong`th guess spoiled."""

    def __init__(self, text: Sequence[int], wrong: int) -> None:
        self.text, self.wrong, self.asked = list(text), wrong, 0

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        self.asked += 1
        found = self.text[len(tokens) : len(tokens) + most]
        return [(token + 1) % 96 if (len(tokens) + place) % self.wrong == 0 else token for place, token in enumerate(found)]


@pytest.mark.parametrize("wrong", [1, 2, 5, 1000])
@pytest.mark.parametrize("how", [Sampling(24), Sampling(24, temperature=1.5, top_k=40, seed=3)])
async def test_the_text_is_the_same_however_good_the_guesses(
    how: Sampling, wrong: int, model: RemoteModel, pair: list[Serving]
) -> None:
    plain = [token async for token in model.generate(PROMPT, how)]
    oracle = Oracle([*PROMPT, *plain], wrong)
    async with model.session(len(PROMPT) + 24) as session:
        assert [token async for token in model.generate(PROMPT, how, session, drafts=oracle)] == plain
        assert session.position == len(PROMPT) + 23
    if wrong == 1000:
        assert oracle.asked <= 4  # 4, 8 and 15 guesses at once


async def test_a_generation_broken_off_amid_guesses_leaves_the_session_where_its_reader_stands(
    model: RemoteModel, tiny: tuple[Path, PreTrainedModel]
) -> None:
    expected = local_tokens(tiny[1], PROMPT, 12)
    async with model.session(64) as session:
        generation = model.generate(PROMPT, Sampling(12), session, drafts=Oracle([*PROMPT, *expected], 1000))
        said = [await anext(generation) for _ in range(3)]
        await generation.aclose()
        assert session.position == len(PROMPT) + 2
        more = [token async for token in model.generate(said[-1:], Sampling(5), session)]
    assert said + more == expected[:8]


async def test_guesses_end_with_a_stop_token_and_fit_the_session(
    model: RemoteModel, tiny: tuple[Path, PreTrainedModel]
) -> None:
    expected = local_tokens(tiny[1], PROMPT, 12)
    oracle = Oracle([*PROMPT, *expected], 1000)
    model.stop_ids = frozenset({expected[6]})
    async with model.session(len(PROMPT) + 7) as session:
        tokens = [token async for token in model.generate(PROMPT, Sampling(7), session, drafts=oracle)]
    assert tokens == expected[: expected.index(expected[6]) + 1]


async def test_a_small_model_may_guess(model: RemoteModel, tiny: tuple[Path, PreTrainedModel]) -> None:
    """Here it is the model itself, so all its guesses are right, also after a question that it has not seen coming."""
    expected = local_tokens(tiny[1], PROMPT, 16)
    small = SmallModel(tiny[0], 96)
    assert small.propose(PROMPT, 5) == expected[:5]
    assert small.propose(PROMPT[:2], 3) == local_tokens(tiny[1], PROMPT[:2], 3)
    assert small.propose(PROMPT, 0) == []
    assert [token async for token in model.generate(PROMPT, Sampling(16), drafts=small)] == expected


async def test_a_small_model_must_share_the_vocabulary(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="vocabulary of 96 tokens, the swarm's model 100"):
        SmallModel(tiny[0], 100)
    with pytest.raises(LocalError, match="holds no model"):
        SmallModel(tmp_path, 96)
