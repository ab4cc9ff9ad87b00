"""A span of any decoder model as one module: the family's own base model, cut.

Masks, rotary embeddings and attention come from transformers itself; what is ours is the cut. The embedding shrinks to one
row that is never read, the final norm becomes the identity, and only the span's tensors are loaded, their keys shifted by
the span's start. Knows nothing of sessions, requests or threads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import Cache, PreTrainedModel
from transformers.utils import logging

from blockserver.checkpoint import Checkpoint, open_checkpoint
from blockserver.cutting import (
    base_class,
    cut_config,
    layers_of,
    let_embeddings_in,
    outline,
    require_same_layers,
    without_vocabulary,
)
from blockserver.facts import ModelFacts, read_config, read_facts
from blockserver.families import Family, block_tensor, family_of
from blockserver.masks import Masks, row_masks
from swarm.errors import LocalError
from swarm.wire.spans import Span

__all__ = ["ModelFacts", "SpanModule", "load_span", "loading_quietly", "read_facts"]

_reporting: Any = logging  # its functions have no types


class SpanModule:
    """Blocks `span` of a model. Shapes: hidden states `[batch, tokens, hidden]`, prompts `[blocks, batch, prefix, hidden]`.

    Not safe to call from several threads at once: deep prompts go in by hooks.
    """

    def __init__(self, model: PreTrainedModel, span: Span, facts: ModelFacts, dtype: torch.dtype) -> None:
        self.span = span
        self.facts = facts
        self.dtype = dtype
        self._model = model
        self._parts: dict[Span, SpanModule] = {span: self}

    @property
    def _layers(self) -> nn.ModuleList:
        return layers_of(self._model)

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def takes_unequal_rows(self) -> bool:
        """Whether rows may be at positions of their own. Where not, each session needs a pass of its own."""
        config = self._model.config
        return not (family_of(config.model_type).rows_in_step or getattr(config, "alibi", False))

    def row_masks(self, queries: torch.Tensor, keys: torch.Tensor) -> Masks:
        """The `attention_mask` for rows at positions of their own; see `masks.row_masks`."""
        return row_masks(self._model.config, queries, keys, self.dtype)

    def forward(
        self,
        hidden: torch.Tensor,
        cache: Cache | None = None,
        prompts: torch.Tensor | None = None,
        *,
        attention_mask: Masks | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The input of the block after the span. With a cache, `hidden` are the tokens that follow those in it.

        Rows at positions of their own (`takes_unequal_rows`) say them, `[batch, tokens]`, and bring `row_masks`.
        """
        with self._deep_prompts(prompts):
            output = self._model(
                inputs_embeds=hidden,
                cache=cache,
                use_cache=cache is not None,
                attention_mask=attention_mask,
                position_ids=position_ids,
            )
        return cast(torch.Tensor, output.last_hidden_state)

    def part(self, span: Span) -> SpanModule:
        """Some of these blocks, sharing weights and cache positions; for a client that enters or leaves in the middle."""
        if span not in self._parts:
            if not self.span.covers(span):
                raise LocalError(f"blocks {span} are not within {self.span}")
            start, end = span.start - self.span.start, span.end - self.span.start
            model = copy.copy(self._model)
            # A shallow copy shares the dictionary of children with the original, which must keep its layers.
            model._modules = dict(self._model._modules)
            setattr(model, family_of(model.config.model_type).layers, self._layers[start:end])
            model.config = cut_config(self._model.config, start, end)
            self._parts[span] = SpanModule(model, span, self.facts, self.dtype)
        return self._parts[span]

    @contextmanager
    def _deep_prompts(self, prompts: torch.Tensor | None) -> Iterator[None]:
        if prompts is None:
            yield
            return
        pairs = zip(self._layers, prompts, strict=True)
        hooks = [layer.register_forward_pre_hook(_adds(prompt)) for layer, prompt in pairs]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def load_span(folder: Path, span: Span, dtype: torch.dtype) -> SpanModule:
    """Reads the span's tensors and nothing else. Raises LocalError, naming file or tensors, where something is missing."""
    facts = read_facts(folder)
    if span.end > facts.num_blocks:
        raise LocalError(f"{folder} has blocks 0:{facts.num_blocks}; {span} is not within them")
    config = read_config(folder)
    family, cut = family_of(config.model_type), without_vocabulary(cut_config(config, span.start, span.end))
    require_same_layers(layers_of(outline(config)), layers_of(outline(cut)), span.start)
    tensors = _read_layers(open_checkpoint(folder), span, family)
    with loading_quietly():
        model, report = cast(Any, base_class(cut)).from_pretrained(
            None, config=cut, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
    _check(report, folder, family)
    leave_out_ends(model, family)
    model.eval().requires_grad_(False)
    return SpanModule(model, span, facts, dtype)


def leave_out_ends(model: PreTrainedModel, family: Family) -> None:
    """Embeddings come finished into block 0 and leave the last block as they are: the rest is the client's."""
    setattr(model, family.norm, nn.Identity())
    let_embeddings_in(model, family)


def require_span(folder: Path, span: Span) -> None:
    """Raises LocalError, naming files or blocks, where `load_span` could not find all it needs. Reads no weights."""
    checkpoint = open_checkpoint(folder)
    checkpoint.require(_shifted_names(checkpoint, span, family_of(read_config(folder).model_type)))


def _read_layers(checkpoint: Checkpoint, span: Span, family: Family) -> dict[str, torch.Tensor]:
    shifted = _shifted_names(checkpoint, span, family)
    return {shifted[name]: tensor for name, tensor in checkpoint.read(shifted).items()}


def _shifted_names(checkpoint: Checkpoint, span: Span, family: Family) -> dict[str, str]:
    """The checkpoint's name of each tensor of the span -> its name in the cut model, whose layers count from 0."""
    shifted: dict[str, str] = {}
    for name in checkpoint.files:
        match = block_tensor(name, family)
        if match and int(match["index"]) in span:
            shifted[name] = f"{family.layers}.{int(match['index']) - span.start}.{match['rest']}"
    held = {int(name.split(".")[1]) for name in shifted.values()}
    bare = [block for block in span if block - span.start not in held]
    if bare:
        raise LocalError(f"{checkpoint.folder} has no tensors of {Span(bare[0], bare[-1] + 1).in_words()}")
    return shifted


def _check(report: dict[str, Any], folder: Path, family: Family) -> None:
    """Anything but the two modules that a span drops must have come from the checkpoint, in the right shape."""
    missing = sorted(key for key in report["missing_keys"] if key.startswith(f"{family.layers}."))
    if missing:
        raise LocalError(f"{folder} lacks tensors of the span: {', '.join(missing[:5])} (layers counted from its start)")
    strange = sorted(map(str, [*report["unexpected_keys"], *report["mismatched_keys"]]))
    if strange:
        raise LocalError(f"{folder} holds tensors that its config does not explain: {', '.join(strange[:5])}")


def _adds(prompt: torch.Tensor) -> Any:
    """A hook that adds a deep prompt `[batch, prefix, hidden]` to the first positions of a block's input."""

    def add(_layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *rest = args
        length = prompt.shape[1]
        return (torch.cat([hidden[:, :length] + prompt, hidden[:, length:]], dim=1), *rest)

    return add


@contextmanager
def loading_quietly() -> Iterator[None]:
    """transformers reports the two tensors that we leave out on purpose as a fault, and draws a bar of its own."""
    verbosity, bars = _reporting.get_verbosity(), _reporting.is_progress_bar_enabled()
    _reporting.set_verbosity_error()
    _reporting.disable_progress_bar()
    try:
        yield
    finally:
        _reporting.set_verbosity(verbosity)
        if bars:
            _reporting.enable_progress_bar()
