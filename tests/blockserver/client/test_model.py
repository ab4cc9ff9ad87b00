"""A conversation over real servers on loopback says what the whole model says, whatever happens to the servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.model import RemoteModel, read_stop_ids
from blockserver.client.sampling import Sampling, choose
from blockserver.client.session import Patience
from blockserver.client.stream import Limits
from blockserver.compute.engine import Engine
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Candidate, Hop, Route
from swarm.wire.spans import Span
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving
from tests.blockserver.recorded import manifest, model_folder, spans

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = [5, 17, 42, 8]
QUICK = Patience(attempts=4, first_pause_s=0.01, longest_pause_s=0.05)
GREEDY_TEN = Sampling(max_new_tokens=10)


@asynccontextmanager
async def four_servers(folder: Path, client: P2P) -> AsyncIterator[list[Serving]]:
    async with AsyncExitStack() as stack:
        spans_held = (Span(0, 2), Span(2, 4), Span(2, 4), Span(4, 6))
        starting = [stack.enter_async_context(serving(folder, span, "tiny", client)) for span in spans_held]
        yield list(await asyncio.gather(*starting))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """Blocks 0:2, then 2:4 twice, then 4:6. The first of the twins is the faster one. No test may harm them."""
    async with four_servers(tiny[0], client) as servers:
        yield servers


@pytest_asyncio.fixture(loop_scope="module")
async def four(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """The same four, for a test that kills some."""
    async with four_servers(tiny[0], client) as servers:
        yield servers


def known(four: Sequence[Serving]) -> KnownServers:
    return KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(four)])


def remote(folder: Path, client: P2P, servers: KnownServers, limits: Limits | None = None) -> RemoteModel:
    model = RemoteModel.load(
        folder, client, servers.find_route, prefix="tiny", dtype=torch.float32, limits=limits, patience=QUICK
    )
    model.stop_ids = frozenset()
    return model


def local_tokens(whole: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(count):
            ids = torch.cat([ids, whole(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, len(prompt) :].tolist()


async def test_greedy_tokens_are_the_whole_models(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    async with remote(tiny[0], client, known(lasting)) as model:
        tokens = [token async for token in model.generate(PROMPT, GREEDY_TEN)]
    assert tokens == local_tokens(tiny[1], PROMPT, 10)
    for server in lasting:
        await asyncio.wait_for(server.handler._idle.wait(), 60)
        assert server.handler.cache_tokens_left == 2 * 2 * 8192


async def test_sampled_tokens_are_those_drawn_from_the_whole_models_logits(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    how = Sampling(max_new_tokens=8, temperature=1.5, top_k=40, top_p=0.95, seed=3)
    async with remote(tiny[0], client, known(lasting)) as model:
        tokens = [token async for token in model.generate(PROMPT, how)]
    source, expected = how.generator(), list(PROMPT)
    with torch.inference_mode():
        for _ in range(8):
            expected.append(choose(tiny[1](torch.tensor([expected])).logits[0, -1], how, source))
    assert tokens == expected[len(PROMPT) :]
    assert tokens != local_tokens(tiny[1], PROMPT, 8)


async def test_a_recorded_model_gives_the_recorded_tokens(client: P2P) -> None:
    """What real Petals generated over real servers, from the same weights."""
    recorded = manifest("llama")
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(model_folder("llama"), span, recorded["dht_prefix"], client))
            for span in spans("llama")
        ]
        route = KnownServers([candidate(server) for server in servers])
        model = await stack.enter_async_context(
            RemoteModel.load(model_folder("llama"), client, route.find_route, prefix=recorded["dht_prefix"])
        )
        [prompt], [expected] = recorded["generate_greedy"]["prompt"], recorded["generate_greedy"]["tokens"]
        tokens = [token async for token in model.generate(prompt, Sampling(max_new_tokens=len(expected) - len(prompt)))]
    assert prompt + tokens == expected


async def test_generation_ends_with_a_stop_token(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    expected = local_tokens(tiny[1], PROMPT, 10)
    async with remote(tiny[0], client, known(lasting)) as model:
        model.stop_ids = frozenset({expected[3]})
        tokens = [token async for token in model.generate(PROMPT, GREEDY_TEN)]
    assert tokens == expected[: expected.index(expected[3]) + 1]


async def test_a_generation_that_is_broken_off_leaves_nothing_on_the_servers(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    async with remote(tiny[0], client, known(lasting)) as model:
        generation = model.generate(PROMPT, GREEDY_TEN)
        await anext(generation)
        assert lasting[0].handler.sessions_active == 1
        await generation.aclose()
        for server in lasting:
            await asyncio.wait_for(server.handler._idle.wait(), 60)
            assert server.handler.cache_tokens_left == 2 * 2 * 8192


async def test_a_session_goes_on_where_it_stood(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    async with remote(tiny[0], client, known(lasting)) as model, model.session(64) as session:
        first = [token async for token in model.generate(PROMPT, Sampling(max_new_tokens=3), session)]
        more = [first[-1], 7, 9]
        second = [token async for token in model.generate(more, Sampling(max_new_tokens=4), session)]
    assert second == local_tokens(tiny[1], [*PROMPT, *first[:-1], *more], 4)


@pytest.mark.parametrize("victim", [0, 1, 3])
async def test_the_tokens_are_the_same_when_a_server_dies_in_between(
    victim: int, tiny: tuple[Path, PreTrainedModel], client: P2P, four: list[Serving]
) -> None:
    """Killed with its p2p daemon, as kill -9 does; a twin of it is there, or comes up meanwhile."""
    servers = known(four)
    async with AsyncExitStack() as stack:
        span = four[victim].engine.span
        twin = await stack.enter_async_context(serving(tiny[0], span, "tiny", client))
        servers.candidates.append(candidate(twin, 1.0))
        model = await stack.enter_async_context(remote(tiny[0], client, servers))
        session = await stack.enter_async_context(model.session(32))
        tokens: list[int] = []
        async for token in model.generate(PROMPT, GREEDY_TEN, session):
            tokens.append(token)
            if len(tokens) == 4:
                assert four[victim].peer_id in {hop.peer_id for hop in session.route}
                await four[victim].p2p.shutdown()
        assert session.recoveries == 1
        assert four[victim].peer_id not in {hop.peer_id for hop in session.route}
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_two_servers_may_take_the_place_of_one(
    tiny: tuple[Path, PreTrainedModel], client: P2P, four: list[Serving]
) -> None:
    async with AsyncExitStack() as stack:
        whole = await stack.enter_async_context(serving(tiny[0], Span(0, 4), "tiny", client))
        servers = KnownServers([candidate(whole, 1000.0), *known(four).candidates])
        model = await stack.enter_async_context(remote(tiny[0], client, servers))
        session = await stack.enter_async_context(model.session(32))
        tokens: list[int] = []
        async for token in model.generate(PROMPT, GREEDY_TEN, session):
            tokens.append(token)
            if len(tokens) == 5:
                assert len(session.route) == 2
                await whole.p2p.shutdown()
        assert [hop.span for hop in session.route] == [Span(0, 2), Span(2, 4), Span(4, 6)]
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_a_server_that_moves_away_is_replaced(
    tiny: tuple[Path, PreTrainedModel], client: P2P, four: list[Serving]
) -> None:
    async with remote(tiny[0], client, known(four)) as model:
        tokens: list[int] = []
        async for token in model.generate(PROMPT, GREEDY_TEN):
            tokens.append(token)
            if len(tokens) == 2:
                four[1].handler.set_engine(None)
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_a_server_that_stalls_is_replaced(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = asyncio.Event()

    async def never(*_: object) -> torch.Tensor:
        await stuck.wait()
        raise AssertionError

    async with remote(tiny[0], client, known(lasting), Limits(step_s=0.5, token_s=0.0)) as model:
        tokens: list[int] = []
        async for token in model.generate(PROMPT, GREEDY_TEN):
            tokens.append(token)
            if len(tokens) == 2:
                monkeypatch.setattr(lasting[1].engine, "step", never)
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_a_block_without_a_server_is_named_and_ends_the_generation(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    servers = known([lasting[0], lasting[1]])
    async with remote(tiny[0], client, servers) as model:
        with pytest.raises(MissingBlocks, match="blocks 4–5 have no server"):
            await anext(model.generate(PROMPT, GREEDY_TEN))


async def test_the_search_for_another_server_is_bounded(
    tiny: tuple[Path, PreTrainedModel], client: P2P, four: list[Serving]
) -> None:
    """The only server of the last blocks dies, and its record stays in the DHT for a while."""
    servers = known(four)
    async with remote(tiny[0], client, servers) as model:
        generation = model.generate(PROMPT, GREEDY_TEN)
        assert await anext(generation) == local_tokens(tiny[1], PROMPT, 1)[0]
        await four[3].p2p.shutdown()
        with pytest.raises(RemoteError):
            await anext(generation)
    assert servers.looked <= 1 + QUICK.attempts


async def test_a_server_that_comes_back_in_time_is_used_again(
    tiny: tuple[Path, PreTrainedModel], client: P2P, four: list[Serving]
) -> None:
    """It gave up its blocks, nobody else holds them, and then it holds them again."""
    server = four[3]
    asked: list[Collection[str]] = []

    async def find_route(span: Span, avoid: Collection[str]) -> Route:
        if span == server.engine.span:
            asked.append(avoid)
            if len(asked) == 2:
                server.handler.set_engine(Engine(server.engine.module, 8192))
        return await known(four).find_route(span, avoid)

    model = RemoteModel.load(tiny[0], client, find_route, prefix="tiny", dtype=torch.float32, patience=QUICK)
    model.stop_ids = frozenset()
    async with model:
        tokens: list[int] = []
        async for token in model.generate(PROMPT, GREEDY_TEN):
            tokens.append(token)
            if len(tokens) == 2:
                server.handler.set_engine(None)
    assert tokens == local_tokens(tiny[1], PROMPT, 10)
    assert asked == [{server.peer_id}, set()]


async def test_a_server_that_answers_nonsense_is_replaced(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(*_: object) -> torch.Tensor:
        return torch.zeros(1, 1, 3)

    async with remote(tiny[0], client, known(lasting)) as model:
        monkeypatch.setattr(lasting[1].engine, "step", nonsense)
        tokens = [token async for token in model.generate(PROMPT, GREEDY_TEN)]
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_an_unknown_peer_is_a_failed_server_not_a_crash(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    """Its record is in the DHT, its address is not."""
    servers = known(lasting)
    stranger = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"
    servers.candidates.append(Candidate(stranger, Span(2, 4), 10_000.0))
    async with remote(tiny[0], client, servers) as model, model.session(20) as session:
        tokens = [token async for token in model.generate(PROMPT, GREEDY_TEN, session)]
        assert Hop(lasting[1].peer_id, Span(2, 4)) in session.route
    assert tokens == local_tokens(tiny[1], PROMPT, 10)


async def test_what_the_caller_does_wrong_is_said_plainly(
    tiny: tuple[Path, PreTrainedModel], client: P2P, tmp_path: Path
) -> None:
    async with remote(tiny[0], client, KnownServers([])) as model:
        with pytest.raises(LocalError, match="at least one token"):
            await anext(model.generate([], GREEDY_TEN))
        with pytest.raises(LocalError, match="token 96 is not within"):
            await anext(model.generate([1, 96], GREEDY_TEN))
        with pytest.raises(LocalError, match="1 to 8,192 tokens"):
            model.session(9000)
    with pytest.raises(LocalError, match="there is no model folder"):
        RemoteModel.load(tmp_path / "nowhere", client, KnownServers([]).find_route)


async def test_a_session_holds_what_it_was_opened_for(
    tiny: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]
) -> None:
    async with remote(tiny[0], client, known(lasting)) as model, model.session(5) as session:
        with pytest.raises(LocalError, match="opened for 5 tokens"):
            async for _ in model.generate(PROMPT, GREEDY_TEN, session):
                pass
        assert session.position == 5


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": 7}, {"eos_token_id": 2}, {7}),
        ({"eos_token_id": [7, 8]}, {}, {7, 8}),
        ({}, {"eos_token_id": 2}, {2}),
        (None, {"eos_token_id": 2}, {2}),
        ({}, {}, set()),
    ],
)
async def test_stop_ids_come_from_the_generation_config_first(
    generation: dict[str, object] | None, config: dict[str, object], expected: set[int], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_stop_ids(tmp_path) == expected
