"""Making a span: its blocks are read one by one, quantised and moved to their device, and put into the family's empty model.

One block at a time keeps the peak of memory at the span plus one block, lets progress be told, and lets a move keep the blocks
that are there already. Knows nothing of sessions, requests or threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from blockserver.model.adapters import load_adapter
from blockserver.model.checkpoint import Checkpoint, open_checkpoint
from blockserver.model.cutting import (
    base_class,
    cut_config,
    layers_of,
    let_embeddings_in,
    outline,
    require_same_layers,
    without_vocabulary,
)
from blockserver.model.facts import ModelFacts, read_config, read_facts
from blockserver.model.families import Family, block_tensor, family_of
from blockserver.model.progress import Meter, Progress, silent
from blockserver.model.quantisation import NONE, check_precision, quantise_block
from blockserver.model.span_module import SpanModule
from swarm.errors import LocalError
from swarm.wire.spans import Span

__all__ = ["ModelFacts", "SpanModule", "add_adapters", "load_span", "loading_quietly", "read_facts", "require_span"]

_reporting: Any = logging  # its functions have no types

CPU = torch.device("cpu")


def load_span(
    folder: Path,
    span: Span,
    dtype: torch.dtype,
    *,
    device: torch.device = CPU,
    quantisation: str = NONE,
    reuse: SpanModule | None = None,
    progress: Progress = silent,
) -> SpanModule:
    """Reads the span's tensors and nothing else. Raises LocalError, naming file or tensors, where something is missing.

    Blocks that `reuse` holds in the same form are taken from it, which must not compute any more.
    """
    if (error := check_precision(quantisation, device)) is not None:
        raise error
    facts = read_facts(folder)
    if span.end > facts.num_blocks:
        raise LocalError(f"{folder} has blocks 0:{facts.num_blocks}; {span} is not within them")
    reader = _BlockReader(folder, dtype)
    kept = _kept_blocks(reuse, span, facts, dtype, quantisation, device)
    missing = [block for block in span if block not in kept]
    names = {block: reader.names(block) for block in missing}
    reader.checkpoint.require([name for block in missing for name in names[block]])
    sizes = {block: reader.checkpoint.nbytes(names[block]) for block in missing}
    meter = Meter(progress)
    meter.expect(sum(sizes.values()))
    for block in missing:
        layer = reader.read(block, names[block])
        quantise_block(layer, quantisation, device)
        kept[block] = layer
        meter.add(sizes[block])
    model = _assembled(reader, span, [kept[block] for block in span], quantisation)
    cast(nn.Module, model).to(device)
    return SpanModule(model, span, facts, dtype, quantisation)


def require_span(folder: Path, span: Span) -> None:
    """Raises LocalError, naming files or blocks, where `load_span` could not find all it needs. Reads no weights."""
    family, checkpoint = family_of(read_config(folder).model_type), open_checkpoint(folder)
    checkpoint.require([name for block in span for name in _block_names(checkpoint, block, family)])


def add_adapters(module: SpanModule, folders: Sequence[Path]) -> None:
    """Loads peft adapters, each to be named by its folder's name in `forward`."""
    family = family_of(read_config(module.facts.folder).model_type)
    for folder in folders:
        adapter = load_adapter(folder, module.layers, module.span, family, module.dtype, module.device)
        module.loaded_adapters[adapter.name] = adapter


class _BlockReader:
    """Reads single blocks of one checkpoint, each as the only layer of a model that is then thrown away."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.folder, self.dtype = folder, dtype
        self.config = read_config(folder)
        self.family = family_of(self.config.model_type)
        self.checkpoint = open_checkpoint(folder)
        self._whole = layers_of(outline(self.config))

    def names(self, block: int) -> dict[str, str]:
        return _block_names(self.checkpoint, block, self.family)

    def read(self, block: int, names: dict[str, str]) -> nn.Module:
        cut = without_vocabulary(cut_config(self.config, block, block + 1))
        require_same_layers(self._whole, layers_of(outline(cut)), block)
        tensors = {names[name]: tensor for name, tensor in self.checkpoint.read(names).items()}
        with loading_quietly():
            model, report = cast(Any, base_class(cut)).from_pretrained(
                None, config=cut, state_dict=tensors, dtype=self.dtype, output_loading_info=True
            )
        _check(report, self.folder, self.family, block)
        return layers_of(model.eval().requires_grad_(False))[0]


def _block_names(checkpoint: Checkpoint, block: int, family: Family) -> dict[str, str]:
    """The checkpoint's name of each tensor of the block -> its name in a model of this block only."""
    matches = ((name, block_tensor(name, family)) for name in checkpoint.files)
    names = {name: f"{family.layers}.0.{match['rest']}" for name, match in matches if match and int(match["index"]) == block}
    if not names:
        raise LocalError(f"{checkpoint.folder} has no tensors of block {block}")
    return names


def _kept_blocks(
    reuse: SpanModule | None, span: Span, facts: ModelFacts, dtype: torch.dtype, quantisation: str, device: torch.device
) -> dict[int, nn.Module]:
    if reuse is None or (reuse.facts, reuse.dtype, reuse.quantisation) != (facts, dtype, quantisation):
        return {}
    if reuse.device != torch.empty(0, device=device).device:  # "cuda" is "cuda:0"
        return {}
    return {block: layer for block, layer in zip(reuse.span, reuse.layers, strict=True) if block in span}


def _assembled(reader: _BlockReader, span: Span, layers: list[nn.Module], quantisation: str) -> PreTrainedModel:
    model = _empty(without_vocabulary(cut_config(reader.config, span.start, span.end)), reader.dtype)
    _leave_out_ends(model, reader.family)
    setattr(model, reader.family.layers, nn.ModuleList(layers))
    model.config.num_hidden_layers = len(span)
    if quantisation != NONE:
        # The family's own loop takes one expert's matrix at a time; the faster ways need all of them in full.
        model.config._experts_implementation = "eager"
    for number, layer in enumerate(layers):
        for module in layer.modules():
            _tell_place(module, number, model.config)
    return cast(Any, model).eval().requires_grad_(False)


def _empty(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """The model with no layers, but with all rotary tables that its layers need: those follow the layers' types."""
    config.num_hidden_layers = 0
    with loading_quietly():
        return cast(PreTrainedModel, cast(Any, base_class(config))._from_config(config, dtype=dtype))


def _tell_place(module: Any, number: int, config: PreTrainedConfig) -> None:
    """A layer knows its number, by which it finds its place in the cache, and the config of the model that it is in."""
    if hasattr(module, "layer_idx"):
        module.layer_idx = number
    if isinstance(getattr(module, "config", None), PreTrainedConfig):
        module.config = config


def _leave_out_ends(model: PreTrainedModel, family: Family) -> None:
    """Embeddings come finished into block 0 and leave the last block as they are: the rest is the client's."""
    setattr(model, family.norm, nn.Identity())
    let_embeddings_in(model, family)


def _check(report: dict[str, Any], folder: Path, family: Family, block: int) -> None:
    """Anything but the two modules that a span drops must have come from the checkpoint, in the right shape."""
    owner = f"{family.layers}.0."
    missing = sorted(key.removeprefix(owner) for key in report["missing_keys"] if key.startswith(owner))
    if missing:
        raise LocalError(f"{folder} lacks tensors of block {block}: {', '.join(missing[:5])}")
    strange = sorted(map(str, [*report["unexpected_keys"], *report["mismatched_keys"]]))
    if strange:
        raise LocalError(f"{folder} holds tensors of block {block} that its config does not explain: {', '.join(strange[:5])}")


_LOADING = RLock()
"""One at a time in a process: while it loads, transformers replaces functions of its own for all threads (for tied weights, for
one), and two that overlap leave them replaced for good."""


@contextmanager
def loading_quietly() -> Iterator[None]:
    """Around each of transformers' `from_pretrained`: it reports the two tensors that we leave out on purpose as a fault, and
    draws a bar of its own."""
    with _LOADING, _quiet():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    verbosity, bars = _reporting.get_verbosity(), _reporting.is_progress_bar_enabled()
    _reporting.set_verbosity_error()
    _reporting.disable_progress_bar()
    try:
        yield
    finally:
        _reporting.set_verbosity(verbosity)
        if bars:
            _reporting.enable_progress_bar()
