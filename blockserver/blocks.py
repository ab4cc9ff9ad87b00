"""A span of any decoder model as one module: the family's own base model, cut.

Masks, rotary embeddings and attention come from transformers itself; what is ours is the cut. The embedding shrinks to one
row that is never read, the final norm becomes the identity, and only the span's tensors are loaded, their keys shifted by
the span's start. Knows nothing of sessions, requests or threads.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import Cache, PreTrainedModel
from transformers.utils import logging

from blockserver.checkpoint import Checkpoint, open_checkpoint
from blockserver.facts import ModelFacts, base_class, cut_config, read_config, read_facts, without_vocabulary
from swarm.errors import LocalError
from swarm.wire.spans import Span

__all__ = ["ModelFacts", "SpanModule", "load_span", "loading_quietly", "read_facts"]

_reporting: Any = logging  # its functions have no types

_LAYER = re.compile(r"(?P<owner>(?:[A-Za-z_]+\.)?)layers\.(?P<index>\d+)\.(?P<rest>.+)")
"""A tensor of a block, in the checkpoint of a model with head (`model.layers.3.…`) or without (`layers.3.…`)."""


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
        return cast(nn.ModuleList, self._model.layers)

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def config(self) -> Any:
        """The family's config of these blocks."""
        return self._model.config

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names that `forward` takes as `adapter`."""
        return ()

    def under(self, **changes: Any) -> SpanModule:
        """The same blocks, sharing weights, whose model reads a config with these changes."""
        model = copy.copy(self._model)
        model.config = copy.deepcopy(self._model.config)
        for name, value in changes.items():
            setattr(model.config, name, value)
        other = copy.copy(self)
        other._model, other._parts = model, {self.span: other}
        return other

    can_step_rows = True
    """Whether `step_rows` is worth trying; whether it is right for the family is found out by `batching`."""

    def step_rows(
        self, hidden: torch.Tensor, cache: Cache, positions: torch.Tensor, masks: Any, adapter: str | None = None
    ) -> torch.Tensor:
        """One token `[rows, 1, hidden]` for each of several sessions, with ready positions `[rows, 1]` and masks."""
        output: torch.Tensor = self._model(
            inputs_embeds=hidden, cache=cache, use_cache=True, position_ids=positions, attention_mask=masks
        ).last_hidden_state
        return output

    def forward(
        self,
        hidden: torch.Tensor,
        cache: Cache | None = None,
        prompts: torch.Tensor | None = None,
        adapter: str | None = None,
    ) -> torch.Tensor:
        """The input of the block after the span. With a cache, `hidden` are the tokens that follow those in it."""
        with self._deep_prompts(prompts):
            output: torch.Tensor = self._model(inputs_embeds=hidden, cache=cache, use_cache=cache is not None).last_hidden_state
        return output

    def part(self, span: Span) -> SpanModule:
        """Some of these blocks, sharing weights and cache positions; for a client that enters or leaves in the middle."""
        if span not in self._parts:
            if not self.span.covers(span):
                raise LocalError(f"blocks {span} are not within {self.span}")
            start, end = span.start - self.span.start, span.end - self.span.start
            model = copy.copy(self._model)
            # A shallow copy shares the dictionary of children with the original, which must keep its layers.
            model._modules = dict(self._model._modules)
            model.layers = self._layers[start:end]
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
    config = without_vocabulary(cut_config(read_config(folder), span.start, span.end))
    tensors = _read_layers(open_checkpoint(folder), span)
    with loading_quietly():
        model, report = cast(Any, base_class(config)).from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
    _check(report, folder)
    model.norm = nn.Identity()
    model.eval().requires_grad_(False)
    return SpanModule(model, span, facts, dtype)


def require_span(folder: Path, span: Span) -> None:
    """Raises LocalError, naming files or blocks, where `load_span` could not find all it needs. Reads no weights."""
    checkpoint = open_checkpoint(folder)
    checkpoint.require(_shifted_names(checkpoint, span))


def _read_layers(checkpoint: Checkpoint, span: Span) -> dict[str, torch.Tensor]:
    shifted = _shifted_names(checkpoint, span)
    return {shifted[name]: tensor for name, tensor in checkpoint.read(shifted).items()}


def _shifted_names(checkpoint: Checkpoint, span: Span) -> dict[str, str]:
    """The checkpoint's name of each tensor of the span -> its name in the cut model, whose layers count from 0."""
    shifted: dict[str, str] = {}
    for name in checkpoint.files:
        match = _LAYER.fullmatch(name)
        if match and int(match["index"]) in span:
            shifted[name] = f"layers.{int(match['index']) - span.start}.{match['rest']}"
    bare = [block for block in span if not any(new.startswith(f"layers.{block - span.start}.") for new in shifted.values())]
    if bare:
        raise LocalError(f"{checkpoint.folder} has no tensors of {Span(bare[0], bare[-1] + 1).in_words()}")
    return shifted


def _check(report: dict[str, Any], folder: Path) -> None:
    """Anything but the two modules that a span drops must have come from the checkpoint, in the right shape."""
    missing = sorted(key for key in report["missing_keys"] if key.startswith("layers."))
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
