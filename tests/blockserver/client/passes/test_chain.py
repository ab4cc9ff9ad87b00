"""Passes without a session over real servers on loopback: what comes back is right, whatever becomes of the servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.passes import calls, chain
from blockserver.client.passes.chain import Chain
from blockserver.client.passes.route_memory import RouteMemory
from blockserver.client.routes import as_router
from blockserver.model.blocks import SpanModule, load_span
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Candidate
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import QUICK
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIDDEN = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
PROMPTS = torch.randn(6, 2, 3, 32, generator=torch.Generator().manual_seed(2))
GRADIENT = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(3))
WHOLE = Span(0, 6)
Tiny = tuple[Path, PreTrainedModel]


@pytest.fixture(scope="module")
def local(tiny: Tiny) -> SpanModule:
    return load_span(tiny[0], WHOLE, torch.float32)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(tiny: Tiny, client: P2P) -> AsyncIterator[list[Serving]]:
    """Blocks 0:2, then 2:6 twice, the first of them the faster. No test may harm them."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving(tiny[0], span, "tiny", client))
            for span in (Span(0, 2), Span(2, 6), Span(2, 6))
        ]


def known(servers: list[Serving]) -> KnownServers:
    return KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(servers)])


def over(client: P2P, servers: KnownServers) -> Chain:
    return Chain(client, "tiny", RouteMemory(as_router(servers.find_route), WHOLE), patience=QUICK)


def gradients(local: SpanModule) -> tuple[torch.Tensor, torch.Tensor]:
    leaves = [HIDDEN.clone().requires_grad_(), PROMPTS.clone().requires_grad_()]
    of_hidden, of_prompts = torch.autograd.grad(local.forward(leaves[0], None, leaves[1]), leaves, GRADIENT)
    return of_hidden, of_prompts


def close(actual: torch.Tensor | None, expected: torch.Tensor) -> None:
    assert actual is not None
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("prompts", [None, PROMPTS])
async def test_forward_is_the_local_one(
    prompts: torch.Tensor | None, local: SpanModule, client: P2P, lasting: list[Serving]
) -> None:
    output, trace = await over(client, known(lasting)).forward(HIDDEN, WHOLE, prompts)
    close(output, local.forward(HIDDEN, None, prompts))
    assert [passed.hop.span for passed in trace[0]] == [Span(0, 2), Span(2, 6)]


async def test_any_run_of_blocks_may_be_passed(tiny: Tiny, client: P2P, lasting: list[Serving]) -> None:
    output, trace = await over(client, known(lasting)).forward(HIDDEN, Span(1, 4), PROMPTS[1:4])
    close(output, load_span(tiny[0], Span(1, 4), torch.float32).forward(HIDDEN, None, PROMPTS[1:4]))
    assert [passed.hop.span for passed in trace[0]] == [Span(1, 2), Span(2, 4)]


async def test_gradients_are_the_local_ones(local: SpanModule, client: P2P, lasting: list[Serving]) -> None:
    passes = over(client, known(lasting))
    _, trace = await passes.forward(HIDDEN, WHOLE, PROMPTS)
    of_hidden, of_prompts = await passes.backward(trace, GRADIENT, WHOLE, PROMPTS)
    close(of_hidden, gradients(local)[0])
    close(of_prompts, gradients(local)[1])


async def test_large_batches_go_in_parts_and_large_tensors_as_streams(
    local: SpanModule, client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "MAX_TOKENS_PER_STEP", 7)
    monkeypatch.setattr(calls, "STREAM_ABOVE_BYTES", 100)
    passes = over(client, known(lasting))
    output, trace = await passes.forward(HIDDEN, WHOLE, PROMPTS)
    assert len(trace) == 2
    close(output, local.forward(HIDDEN, None, PROMPTS))
    of_hidden, of_prompts = await passes.backward(trace, GRADIENT, WHOLE, PROMPTS)
    close(of_hidden, gradients(local)[0])
    close(of_prompts, gradients(local)[1])
    with pytest.raises(LocalError, match="up to 7 tokens in a row, not 8"):
        await passes.forward(torch.zeros(1, 8, 32), WHOLE)


async def test_a_server_that_died_between_forward_and_backward_is_replaced_by_two(
    tiny: Tiny, local: SpanModule, client: P2P, lasting: list[Serving]
) -> None:
    async with serving(tiny[0], WHOLE, "tiny", client) as alone:
        servers = KnownServers([candidate(alone, 10_000.0), *known(lasting).candidates])
        passes = over(client, servers)
        _, trace = await passes.forward(HIDDEN, WHOLE, PROMPTS)
        assert [passed.hop.peer_id for passed in trace[0]] == [alone.peer_id]
        await alone.p2p.shutdown()
        of_hidden, of_prompts = await passes.backward(trace, GRADIENT, WHOLE, PROMPTS)
    close(of_hidden, gradients(local)[0])
    close(of_prompts, gradients(local)[1])


@pytest.mark.parametrize("answer", [torch.full((2, 5, 32), torch.nan), torch.zeros(2, 5, 31)], ids=["nan", "shape"])
async def test_a_server_that_answers_nonsense_is_replaced(
    answer: torch.Tensor, local: SpanModule, client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(*_: Any) -> torch.Tensor:
        return answer

    monkeypatch.setattr(lasting[1].engine, "forward", nonsense)
    output, trace = await over(client, known(lasting)).forward(HIDDEN, WHOLE)
    close(output, local.forward(HIDDEN))
    assert trace[0][-1].hop.peer_id == lasting[2].peer_id


async def test_gradients_of_nonsense_are_asked_elsewhere(
    local: SpanModule, client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(*_: Any) -> list[torch.Tensor]:
        return [torch.full((2, 5, 32), torch.inf), PROMPTS]

    passes = over(client, known(lasting))
    _, trace = await passes.forward(HIDDEN, WHOLE, PROMPTS)
    monkeypatch.setattr(lasting[1].engine, "backward", nonsense)
    of_hidden, _ = await passes.backward(trace, GRADIENT, WHOLE, PROMPTS)
    close(of_hidden, gradients(local)[0])


async def test_the_search_is_bounded_and_says_what_is_missing(client: P2P, lasting: list[Serving]) -> None:
    with pytest.raises(MissingBlocks, match="blocks 2–5 have no server"):
        await over(client, known(lasting[:1])).forward(HIDDEN, WHOLE)
    stranger = Candidate("12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp", Span(2, 6), 1.0)
    servers = KnownServers([candidate(lasting[0]), stranger])
    with pytest.raises(RemoteError):
        await over(client, servers).forward(HIDDEN, WHOLE)
    assert servers.looked <= 2 * (2 + QUICK.attempts)


async def test_a_server_that_is_there_again_in_time_is_used_again(
    local: SpanModule, client: P2P, lasting: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only one for its blocks, and refuses twice."""
    forward, asked = lasting[1].engine.forward, 0

    async def refuses_at_first(*given: Any) -> torch.Tensor:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise RemoteError("busy")
        return await forward(*given)

    monkeypatch.setattr(lasting[1].engine, "forward", refuses_at_first)
    output, _ = await over(client, known(lasting[:2])).forward(HIDDEN, WHOLE)
    close(output, local.forward(HIDDEN))
