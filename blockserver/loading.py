"""From settings to blocks in memory: the one place where `serve` and `bench` meet models.

Knows which settings say how blocks are loaded. `Progress` is called from the loading thread with
bytes done, bytes in all, and seconds since the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from blockserver.blocks import SpanModule, load_span, require_span
from blockserver.config import LoadConfig
from blockserver.facts import ModelFacts, read_facts
from blockserver.threads import in_thread
from swarm.wire.spans import Span

Progress = Callable[[int, int, float], None]


def read_model(config: LoadConfig) -> ModelFacts:
    """What the model's files say; LocalError where it cannot be served."""
    return read_facts(config.model)


def dtype_of(config: LoadConfig, facts: ModelFacts) -> torch.dtype:
    chosen: torch.dtype = facts.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    return chosen


def require(config: LoadConfig, span: Span) -> None:
    """LocalError where files of the span are missing, before anything is announced or loaded."""
    require_span(config.model, span)


def bytes_to_fetch(config: LoadConfig, span: Span) -> int:
    """What loading `span` would write to the disk: nothing for a folder."""
    return 0


async def load(config: LoadConfig, facts: ModelFacts, span: Span, dtype: torch.dtype, progress: Progress) -> SpanModule:
    total = facts.bytes_per_block(dtype) * len(span)
    started = time.monotonic()
    progress(0, total, 0.0)
    module = await in_thread(f"loading {span}", lambda: load_span(config.model, span, dtype))
    progress(total, total, time.monotonic() - started)
    return module
