"""How many tokens a second this machine computes with the span it holds, measured on the span itself.

Knows two short measurements and Petals' formula for the announced figure; the network's figure is given to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from blockserver.compute.cache import SessionCache
from blockserver.compute.engine import Engine
from blockserver.model.blocks import SpanModule
from swarm.errors import LocalError

PHASE_S = 0.3
"""Time for each of the two measurements: both together stay below a second where one pass takes a few milliseconds."""

FORWARD_TOKENS = 128
"""Tokens of a parallel forward: enough to be bound by arithmetic rather than by reading weights, and quick on a CPU."""

CACHED_TOKENS = 64
"""Tokens in the cache when single steps are measured."""

RELAY_SHARE = 0.2
"""What Petals counts of the network's rate when traffic goes through a relay."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates in tokens times blocks per second; `network_rps` in tokens per second, None where it is not measured."""

    inference_rps: float
    forward_rps: float
    network_rps: float | None = None

    def __str__(self) -> str:
        return f"{self.inference_rps:,.0f} blocks/s token by token, {self.forward_rps:,.0f} in parallel"

    def announced(self, blocks: int, relay: bool = False) -> float:
        """Tokens per second, as Petals announces it: a request enters anywhere, so on average half the blocks are used."""
        compute = 2.0 * self.forward_rps / (blocks + 1)
        if self.network_rps is None:
            return compute
        return min(compute, self.network_rps * (RELAY_SHARE if relay else 1.0))


async def measure(engine: Engine, network_rps: float | None = None) -> Throughput:
    """Takes `PHASE_S` twice on the engine's compute thread, or one pass each where a pass takes longer."""
    if network_rps is not None and network_rps <= 0.0:
        raise LocalError("the network's rate is a positive number of tokens per second, or not known")
    blocks = len(engine.span)
    inference = await engine.run(_steps_per_second)
    forward = await engine.run(_forward_tokens_per_second)
    return Throughput(inference * blocks, forward * blocks, network_rps)


@torch.inference_mode()
def _steps_per_second(module: SpanModule) -> float:
    cache = SessionCache(len(module.span), CACHED_TOKENS + 1)
    module.forward(_noise(module, CACHED_TOKENS), cache)
    cache.advance(CACHED_TOKENS)
    token = _noise(module, 1)
    return _passes_per_second(lambda: module.forward(token, cache))


@torch.inference_mode()
def _forward_tokens_per_second(module: SpanModule) -> float:
    hidden = _noise(module, FORWARD_TOKENS)
    return FORWARD_TOKENS * _passes_per_second(lambda: module.forward(hidden))


def _passes_per_second(run: Callable[[], torch.Tensor]) -> float:
    run()  # the first pass takes memory and picks kernels
    started = time.perf_counter()
    passes = 0
    while not passes or time.perf_counter() - started < PHASE_S:
        run()
        passes += 1
    return passes / (time.perf_counter() - started)


def _noise(module: SpanModule, tokens: int) -> torch.Tensor:
    return torch.randn(1, tokens, module.facts.hidden_size).to(device=module.device, dtype=module.dtype)
