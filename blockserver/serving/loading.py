"""From settings to blocks in memory: the one place where `serve` and `bench` meet models.

Knows which settings say where a model is and how its blocks are loaded. `Progress` is called from the loading thread with
bytes done, bytes in all, and seconds since the start.
"""

from __future__ import annotations

from pathlib import Path

import torch

from blockserver.config import LoadConfig
from blockserver.model import hub, model_source
from blockserver.model.adapters import adapter_bytes
from blockserver.model.blocks import SpanModule, add_adapters, require_span
from blockserver.model.capacity import choose_num_blocks
from blockserver.model.compute_device import choose_device
from blockserver.model.facts import ModelFacts
from blockserver.model.progress import Progress, shown
from blockserver.model.quantisation import check_precision
from blockserver.places import cache_folder
from blockserver.threads import in_thread
from swarm.wire.spans import Span

__all__ = [
    "Progress",
    "blocks_on_disk",
    "blocks_to_serve",
    "bytes_to_fetch",
    "device_of",
    "dtype_of",
    "load",
    "read_model",
    "require",
]


def read_model(config: LoadConfig) -> ModelFacts:
    """What the model's files say; of a hub's model only configs are fetched. LocalError where it cannot be served."""
    if (error := check_precision(config.quant_type, device_of(config))) is not None:
        raise error
    return model_source.facts_of(source_of(config))


def dtype_of(config: LoadConfig, facts: ModelFacts) -> torch.dtype:
    chosen: torch.dtype = facts.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    return chosen


def device_of(config: LoadConfig) -> torch.device:
    return choose_device(config.device)


def blocks_to_serve(config: LoadConfig, wanted: int | None, facts: ModelFacts, dtype: torch.dtype, cache_tokens: int) -> int:
    """What the operator wants, or what fits with these settings; LocalError where that is nothing."""
    return choose_num_blocks(
        wanted,
        facts,
        dtype,
        cache_tokens,
        quantisation=config.quant_type,
        device=device_of(config),
        adapter_bytes=sum(map(adapter_bytes, config.adapters)),
    )


def require(config: LoadConfig, span: Span) -> None:
    """LocalError where files of the span are missing in a folder, before anything is announced or loaded."""
    if config.in_folder:
        require_span(config.model, span)


def bytes_to_fetch(config: LoadConfig, span: Span) -> int:
    """What loading `span` would write to the disk: nothing for a folder."""
    source = source_of(config)
    return hub.bytes_to_fetch(source, span) if isinstance(source, hub.Source) else 0


def blocks_on_disk(config: LoadConfig, num_blocks: int) -> tuple[Span, ...]:
    """Of a hub's model, the blocks that need no download. Asks nobody."""
    source = source_of(config)
    return hub.blocks_on_disk(source, num_blocks) if isinstance(source, hub.Source) else ()


async def load(
    config: LoadConfig, facts: ModelFacts, span: Span, dtype: torch.dtype, progress: Progress, reuse: SpanModule | None = None
) -> SpanModule:
    """Takes from `reuse`, whose engine is stopped, the blocks that it already has."""
    source = source_of(config)

    def work() -> SpanModule:
        with shown(f"loading {span.in_words()}") as bar:

            def tell(done: int, total: int, seconds: float) -> None:
                progress(done, total, seconds)
                bar(done, total, seconds)

            module = model_source.load(
                source, span, dtype, device=device_of(config), quantisation=config.quant_type, reuse=reuse, progress=tell
            )
        add_adapters(module, config.adapters)
        return module

    return await in_thread(f"loading {span}", work)


def source_of(config: LoadConfig) -> Path | hub.Source:
    if config.in_folder:
        return config.model
    return hub.Source(
        repository=str(config.model),
        cache=config.cache_dir or cache_folder(),
        revision=config.revision or "main",
        token=config.token,
        limit_bytes=config.max_disk_space,
    )
