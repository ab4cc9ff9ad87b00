"""Who gets cache: idle sessions make room when others wait, memory follows need, and running out of it is one error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.compute import engine as engine_module
from blockserver.compute.admission import CacheFull
from blockserver.compute.engine import Busy, Engine, OutOfMemory, SessionEvicted
from blockserver.model.adapters import Adapter
from blockserver.model.blocks import SpanModule, load_span
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span

SPAN = Span(0, 3)
TOKEN = 3 * 2 * 2 * 8 * 4
"""Bytes of a token: blocks, keys and values, heads, head dimension, float32."""


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(tiny: tuple[Path, PreTrainedModel], clock: Clock) -> Iterator[Engine]:
    one = Engine(load_span(tiny[0], SPAN, torch.float32), 100, clock=clock)
    yield one
    one.stop()


def noise(tokens: int) -> BlockInput:
    return BlockInput(torch.randn(1, tokens, 32))


async def test_a_session_that_opens_and_never_steps_is_ended_when_another_needs_its_cache(engine: Engine, clock: Clock) -> None:
    silent = await engine.open(SPAN, 1, 80)
    with pytest.raises(CacheFull):
        await engine.open(SPAN, 1, 50)
    clock.now += engine_module.NEVER_STEPPED_S
    other = await engine.open(SPAN, 1, 50)
    assert "idle for 30 s while others waited" in silent.ended.result()
    with pytest.raises(SessionEvicted, match="idle for 30 s"):
        await engine.step(silent, noise(1))
    assert engine.load().evicted == 1
    engine.close(silent)
    engine.close(other)
    assert engine.cache_tokens_left == 2 * 3 * 100


async def test_a_session_that_is_in_use_is_not_ended(engine: Engine, clock: Clock) -> None:
    session = await engine.open(SPAN, 1, 80)
    for _ in range(5):
        clock.now += engine_module.IDLE_S - 1
        await engine.step(session, noise(1))
    clock.now += engine_module.NEVER_STEPPED_S
    with pytest.raises(CacheFull):
        await engine.open(SPAN, 1, 50)
    assert not session.ended.done()


async def test_reserving_only_is_no_step(engine: Engine, clock: Clock) -> None:
    silent = await engine.open(SPAN, 1, 80)
    await engine.step(silent, noise(0))
    clock.now += engine_module.NEVER_STEPPED_S
    await engine.open(SPAN, 1, 50)
    assert silent.ended.done()


async def test_no_more_sessions_are_ended_than_room_is_needed_for(engine: Engine, clock: Clock) -> None:
    """The one that has been idle for longest goes first."""
    sessions = []
    for _ in range(3):
        sessions.append(await engine.open(SPAN, 1, 30))
        clock.now += 1.0
    clock.now += engine_module.NEVER_STEPPED_S
    await engine.open(SPAN, 1, 40)
    assert [session.ended.done() for session in sessions] == [True, False, False]


async def test_who_waits_for_cache_gets_that_of_a_session_that_becomes_idle(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue looks again when the time has come, without anybody ending or asking."""
    monkeypatch.setattr(engine_module, "NEVER_STEPPED_S", 0.02)
    engine.clock = asyncio.get_running_loop().time
    silent = await engine.open(SPAN, 1, 80)
    other = await asyncio.wait_for(engine.open(SPAN, 1, 50, alloc_timeout_s=20.0), 20)
    assert silent.ended.done()
    assert other.reserved == 50 * TOKEN


async def test_sessions_without_tokens_are_bounded_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MOST_SESSIONS", 2)
    opened = [await engine.open(SPAN, 1, 0) for _ in range(2)]
    with pytest.raises(Busy, match="2 sessions are open; try again"):
        await engine.open(SPAN, 1, 0)
    engine.close(opened[0])
    await engine.open(SPAN, 1, 0)


async def test_memory_is_taken_by_need_and_given_back(engine: Engine) -> None:
    session = await engine.open(SPAN, 1, 90)
    assert engine.memory_bytes == 0
    await engine.step(session, noise(3))
    assert engine.memory_bytes == 32 * TOKEN
    await engine.step(session, noise(30))
    assert engine.memory_bytes == 64 * TOKEN
    await engine.step(session, noise(40))
    assert engine.memory_bytes == 90 * TOKEN, "never more than was reserved"
    engine.close(session)
    await engine.run(lambda _: None)
    assert engine.memory_bytes == 0
    assert session.cache.bytes == 0


async def test_a_budget_may_be_given_in_bytes(tiny: tuple[Path, PreTrainedModel]) -> None:
    engine = Engine(load_span(tiny[0], SPAN, torch.float32), 0, cache_bytes=10 * TOKEN + 7)
    assert engine.cache_tokens_left == 2 * 3 * 10
    await engine.open(SPAN, 1, 10)
    assert engine.cache_tokens_left == 0
    engine.stop()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("can't allocate memory")])
async def test_out_of_memory_fails_the_request_and_not_the_server(
    error: Exception, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await engine.open(SPAN, 1, 20)
    await engine.step(session, noise(2))

    def too_much(*_: object, **__: object) -> torch.Tensor:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SpanModule, "forward", too_much)
        for asked in (engine.step(session, noise(1)), engine.step(session, noise(9)), engine.forward(SPAN, noise(4))):
            with pytest.raises(OutOfMemory, match="out of memory in this pass"):
                await asked
    assert session.position == 2
    assert (await engine.step(session, noise(1))).shape == (1, 1, 32)


async def test_an_adapter_that_is_not_there_is_refused_before_anything_is_reserved(engine: Engine) -> None:
    with pytest.raises(RemoteError, match="no adapter 'mine'"):
        await engine.open(SPAN, 1, 20, adapter="mine")
    with pytest.raises(RemoteError, match="no adapter 'mine'"):
        await engine.forward(SPAN, noise(1), "mine")
    assert engine.cache_tokens_left == 2 * 3 * 100


async def test_an_adapter_is_passed_to_the_blocks_by_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    chosen = SpanModule._adapter

    def recorded(self: SpanModule, name: str) -> Adapter:
        used.append(name)
        return chosen(self, name)

    monkeypatch.setattr(SpanModule, "_adapter", recorded)
    engine.module.loaded_adapters["mine"] = Adapter("mine", {})
    session = await engine.open(SPAN, 1, 20, adapter="mine")
    await engine.step(session, noise(2))
    await engine.forward(SPAN, noise(2), "mine")
    assert used == ["mine", "mine"]
    await engine.forward(SPAN, noise(2))
    assert used == ["mine", "mine"]
    await engine.backward(SPAN, noise(2), torch.zeros(1, 2, 32), "mine")
    assert used == ["mine"] * 3
