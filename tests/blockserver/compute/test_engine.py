"""One compute thread: what it computes, what it refuses, and how it stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.compute.engine import Engine, EngineStopped
from blockserver.model.blocks import SpanModule, load_span
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span

SPAN = Span(0, 3)


@pytest.fixture
def engine(tiny: tuple[Path, PreTrainedModel]) -> Iterator[Engine]:
    one = Engine(load_span(tiny[0], SPAN, torch.float32), 100)
    yield one
    one.stop()


async def test_sessions_side_by_side_do_not_mix(engine: Engine) -> None:
    hidden = torch.randn(2, 6, 32)
    expected = await engine.forward(SPAN, BlockInput(hidden))
    sessions = [await engine.open(SPAN, 1, 6) for _ in range(2)]
    for position in range(6):
        outputs = await asyncio.gather(
            *(
                engine.step(session, BlockInput(hidden[row : row + 1, position : position + 1]))
                for row, session in enumerate(sessions)
            )
        )
        torch.testing.assert_close(torch.cat(outputs), expected[:, position : position + 1], atol=2e-5, rtol=2e-5)
    for session in sessions:
        engine.close(session)
    assert engine.cache_tokens_left == 2 * 3 * 100


async def test_a_step_that_fails_leaves_the_session_as_it_was(engine: Engine) -> None:
    hidden = torch.randn(1, 4, 32)
    expected = await engine.forward(SPAN, BlockInput(hidden))
    session = await engine.open(SPAN, 1, 4)
    await engine.step(session, BlockInput(hidden[:, :2]))
    with pytest.raises(RemoteError, match="not finite"):
        await engine.step(session, BlockInput(torch.full((1, 1, 32), torch.inf)))
    assert session.position == 2
    torch.testing.assert_close(await engine.step(session, BlockInput(hidden[:, 2:])), expected[:, 2:])
    engine.close(session)


async def test_what_the_blocks_raise_fails_the_request_not_the_thread(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> torch.Tensor:
        raise MemoryError("no more of it")

    with monkeypatch.context() as patch:
        patch.setattr(SpanModule, "forward", out_of_memory)
        with pytest.raises(RemoteError, match="MemoryError: no more of it"):
            await engine.forward(SPAN, BlockInput(torch.randn(1, 1, 32)))
    assert (await engine.forward(SPAN, BlockInput(torch.randn(1, 1, 32)))).shape == (1, 1, 32)


async def test_backward_gives_the_gradients_that_torch_gives_for_the_whole(
    engine: Engine, tiny: tuple[Path, PreTrainedModel]
) -> None:
    hidden, gradient, prompts = torch.randn(2, 4, 32), torch.randn(2, 4, 32), torch.randn(3, 2, 1, 32)
    ours = await engine.backward(SPAN, BlockInput(hidden, prompts), gradient)
    leaves = [hidden.clone().requires_grad_(), prompts.clone().requires_grad_()]
    output = load_span(tiny[0], SPAN, torch.float32).forward(leaves[0], prompts=leaves[1])
    for one, expected in zip(ours, torch.autograd.grad(output, leaves, gradient), strict=True):
        torch.testing.assert_close(one, expected)


async def test_work_that_waits_ends_with_an_error_when_the_engine_stops(engine: Engine) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(_: SpanModule) -> bool:
        entered.set()
        return leave.wait(60)

    running = asyncio.ensure_future(engine.run(hold))
    await asyncio.to_thread(entered.wait, 20)
    waiting = asyncio.ensure_future(engine.forward(SPAN, BlockInput(torch.randn(1, 1, 32))))
    await asyncio.sleep(0)
    engine.stop()
    leave.set()
    assert await running is True
    with pytest.raises(EngineStopped, match="no longer served here"):
        await waiting
    with pytest.raises(EngineStopped):
        await engine.open(SPAN, 1, 1)
    with pytest.raises(EngineStopped):
        await engine.forward(SPAN, BlockInput(torch.randn(1, 1, 32)))


async def test_a_client_that_stops_waiting_does_not_disturb_the_others(engine: Engine) -> None:
    impatient = asyncio.ensure_future(engine.forward(SPAN, BlockInput(torch.randn(1, 64, 32))))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await engine.forward(SPAN, BlockInput(torch.randn(1, 1, 32)))).shape == (1, 1, 32)
