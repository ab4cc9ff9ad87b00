"""A span from wherever the model is, a folder or a hub, with one figure for how far it has come."""

from __future__ import annotations

from pathlib import Path

import torch

from blockserver.model.blocks import CPU, load_span
from blockserver.model.facts import ModelFacts, read_facts
from blockserver.model.hub import Source, fetch_facts, fetch_span
from blockserver.model.progress import Progress, silent
from blockserver.model.quantisation import NONE
from blockserver.model.span_module import SpanModule
from swarm.errors import LocalError
from swarm.wire.spans import Span


def facts_of(model: Path | Source) -> ModelFacts:
    """Downloads configs only, and refuses what cannot be served."""
    return read_facts(model if isinstance(model, Path) else fetch_facts(model))


def load(
    model: Path | Source,
    span: Span,
    dtype: torch.dtype,
    *,
    device: torch.device = CPU,
    quantisation: str = NONE,
    reuse: SpanModule | None = None,
    progress: Progress = silent,
) -> SpanModule:
    """`load_span`, after downloading what is not there. `progress` covers both, in bytes."""
    if isinstance(model, Path):
        return load_span(model, span, dtype, device=device, quantisation=quantisation, reuse=reuse, progress=progress)
    facts = facts_of(model)
    if span.end > facts.num_blocks:
        raise LocalError(f"{model.repository} has blocks 0:{facts.num_blocks}; {span} is not within them")
    stages = _Stages(progress, reading=facts.bytes_per_block(facts.dtype) * len(span))
    fetched = fetch_span(model, span, stages.downloading)
    module = load_span(
        fetched.folder, span, dtype, device=device, quantisation=quantisation, reuse=reuse, progress=stages.reading
    )
    module.held = fetched.hold
    return module


class _Stages:
    """Download, then read. What reading will take is estimated beforehand, so that the share done never falls back."""

    def __init__(self, progress: Progress, reading: int) -> None:
        self._progress, self._to_read = progress, reading
        self._downloaded, self._seconds = 0, 0.0

    def downloading(self, done: int, total: int, seconds: float) -> None:
        self._downloaded, self._seconds = total, seconds
        self._progress(done, total + self._to_read, seconds)

    def reading(self, done: int, total: int, seconds: float) -> None:
        share = done / total if total else 1.0
        whole = self._downloaded + self._to_read
        self._progress(self._downloaded + round(share * self._to_read), whole, self._seconds + seconds)
