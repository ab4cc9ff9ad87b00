"""Engines for tests: a compute thread that can be held, so that what comes meanwhile waits together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import torch

from blockserver.compute.cache import SessionCache
from blockserver.compute.engine import Engine, Session
from blockserver.model.blocks import SpanModule
from blockserver.wire.protocol import BlockInput

T = TypeVar("T")
PATIENCE_S = 60.0


@asynccontextmanager
async def held(engine: Engine) -> AsyncIterator[None]:
    """Within it the compute thread does nothing; at its end it finds all that was asked for."""
    entered, leave = threading.Event(), threading.Event()

    def hold(_: SpanModule) -> bool:
        entered.set()
        return leave.wait(PATIENCE_S)

    running = asyncio.ensure_future(engine.run(hold))
    await asyncio.to_thread(entered.wait, PATIENCE_S)
    try:
        yield
    finally:
        leave.set()
        await running


async def all_at_once(engine: Engine, asked: Sequence[Awaitable[T]]) -> list[T | BaseException]:
    """The results, or what was raised."""
    async with held(engine):
        tasks = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


class Alone:
    """The same session computed by itself, to compare with."""

    def __init__(self, module: SpanModule, max_length: int = 256) -> None:
        self.module = module
        self.cache = SessionCache(len(module.span), max_length)

    def step(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            output = self.module.forward(hidden, self.cache)
        self.cache.advance(hidden.shape[1])
        return output


async def prefilled(engine: Engine, hidden: torch.Tensor, max_length: int = 256) -> Session:
    session = await engine.open(engine.span, hidden.shape[0], max_length)
    await engine.step(session, BlockInput(hidden))
    return session
