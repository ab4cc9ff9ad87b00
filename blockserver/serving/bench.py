"""`sepal bench`: how fast this machine computes a model's blocks, and what a server here would announce.

Measures a few blocks and scales: a span's rate is the blocks' rate over their number.
"""

from __future__ import annotations

import json

from rich.console import Console

from blockserver.compute.engine import Engine
from blockserver.compute.throughput import measure
from blockserver.config import LoadConfig
from blockserver.devices import find_devices
from blockserver.serving import loading
from swarm.wire.spans import Span

BLOCKS_MEASURED = 4
"""Enough to be bound by the weights' memory rather than by caches, and loaded in seconds."""


async def run_bench(config: LoadConfig, num_blocks: int | None, cache_tokens: int, *, as_json: bool) -> None:
    facts = loading.read_model(config)
    dtype = loading.dtype_of(config, facts)
    fit = loading.blocks_to_serve(config, num_blocks, facts, dtype, cache_tokens)
    span = Span(0, min(BLOCKS_MEASURED, fit))
    loading.require(config, span)
    engine = Engine(await loading.load(config, facts, span, dtype, lambda done, total, seconds: None), cache_tokens)
    try:
        rates = await measure(engine)
    finally:
        engine.stop()
    report = {
        "model": facts.prefix,
        "dtype": str(dtype).removeprefix("torch."),
        "devices": [{"name": one.name, "model": one.model, "free_bytes": one.free_bytes} for one in find_devices()],
        "blocks_measured": len(span),
        "num_blocks": fit,
        "inference_rps": rates.inference_rps,
        "forward_rps": rates.forward_rps,
        "network_rps": None,
        "throughput": rates.announced(fit),
    }
    if as_json:
        print(json.dumps(report, indent=2))  # noqa: T201
        return
    console = Console(highlight=False)
    for device in find_devices():
        console.print(f"device      {device}")
    console.print(f"model       {report['model']}, {fit} of {facts.num_blocks} blocks, {report['dtype']}")
    console.print(f"one token   {rates.inference_rps / fit:,.1f} tokens/s through {fit} blocks, one session")
    console.print(f"in parallel {rates.forward_rps / fit:,.0f} tokens/s through {fit} blocks")
    console.print(f"announced   {rates.announced(fit):,.0f} tokens/s, or what the network carries if that is less")
