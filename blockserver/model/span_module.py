"""A span of any decoder model as one module: the family's own base model, cut.

Masks, rotary embeddings and attention come from transformers itself; what is ours is the cut, made in `blocks`. Knows nothing
of files, sessions, requests or threads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import nn
from transformers import Cache, PreTrainedModel

from blockserver.model.adapters import Adapter, UnknownAdapter
from blockserver.model.cutting import cut_config, layers_of
from blockserver.model.facts import ModelFacts
from blockserver.model.families import family_of
from blockserver.model.masks import Masks, row_masks
from blockserver.model.quantisation import NONE, ready_for_gradients
from swarm.errors import LocalError
from swarm.wire.spans import Span


class SpanModule:
    """Blocks `span` of a model. Shapes: hidden states `[batch, tokens, hidden]`, prompts `[blocks, batch, prefix, hidden]`.

    Not safe to call from several threads at once: deep prompts and adapters go in by hooks. `loaded_adapters` may be added to
    between passes; parts share it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        span: Span,
        facts: ModelFacts,
        dtype: torch.dtype,
        quantisation: str = NONE,
        loaded_adapters: dict[str, Adapter] | None = None,
    ) -> None:
        self.span = span
        self.facts = facts
        self.dtype = dtype
        self.quantisation = quantisation
        self.loaded_adapters = {} if loaded_adapters is None else loaded_adapters
        self.held: object = None
        """Keeps the files that the weights are mapped from where they are."""
        self._model = model
        self._parts: dict[Span, SpanModule] = {span: self}

    @property
    def layers(self) -> nn.ModuleList:
        return layers_of(self._model)

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
        return tuple(sorted(self.loaded_adapters))

    @property
    def can_step_rows(self) -> bool:
        """Whether rows may be at positions of their own. Where not, each session needs a pass of its own."""
        config = self.config
        return not (family_of(config.model_type).rows_in_step or getattr(config, "alibi", False))

    def row_masks(self, queries: torch.Tensor, keys: torch.Tensor) -> Masks:
        """The `attention_mask` for rows at positions of their own; see `masks.row_masks`."""
        return row_masks(self.config, queries, keys, self.dtype)

    def forward(
        self,
        hidden: torch.Tensor,
        cache: Cache | None = None,
        prompts: torch.Tensor | None = None,
        adapter: str | None = None,
        *,
        attention_mask: Masks | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The input of the block after the span. With a cache, `hidden` are the tokens that follow those in it.

        Rows at positions of their own (`can_step_rows`) say them, `[batch, tokens]`, and bring `row_masks`.
        RemoteError where no adapter of that name was loaded.
        """
        if self.quantisation != NONE and (hidden.requires_grad or (prompts is not None and prompts.requires_grad)):
            ready_for_gradients(self.layers)
        with ExitStack() as hooks:
            if prompts is not None:
                hooks.enter_context(_deep_prompts(self.layers, prompts))
            if adapter is not None:
                hooks.enter_context(self._adapter(adapter).applied(self.layers, self.span))
            output = self._model(
                inputs_embeds=hidden,
                cache=cache,
                use_cache=cache is not None,
                attention_mask=attention_mask,
                position_ids=position_ids,
            )
        return cast(torch.Tensor, output.last_hidden_state)

    def step_rows(
        self, hidden: torch.Tensor, cache: Cache, positions: torch.Tensor, masks: Masks, adapter: str | None = None
    ) -> torch.Tensor:
        """One token `[rows, 1, hidden]` for each of several sessions, with positions `[rows, 1]` and masks of their own."""
        return self.forward(hidden, cache, None, adapter, attention_mask=masks, position_ids=positions)

    def under(self, **changes: Any) -> SpanModule:
        """The same blocks, sharing weights, whose model reads a config with these changes."""
        model = copy.copy(self._model)
        model.config = copy.deepcopy(self._model.config)
        for name, value in changes.items():
            setattr(model.config, name, value)
        other = copy.copy(self)
        other._model, other._parts = model, {self.span: other}
        return other

    def part(self, span: Span) -> SpanModule:
        """Some of these blocks, sharing weights and cache positions; for a client that enters or leaves in the middle."""
        if span not in self._parts:
            if not self.span.covers(span):
                raise LocalError(f"blocks {span} are not within {self.span}")
            start, end = span.start - self.span.start, span.end - self.span.start
            model = copy.copy(self._model)
            # A shallow copy shares the dictionary of children with the original, which must keep its layers.
            model._modules = dict(self._model._modules)
            setattr(model, family_of(model.config.model_type).layers, self.layers[start:end])
            model.config = cut_config(self._model.config, start, end)
            self._parts[span] = SpanModule(model, span, self.facts, self.dtype, self.quantisation, self.loaded_adapters)
        return self._parts[span]

    def _adapter(self, name: str) -> Adapter:
        if name not in self.loaded_adapters:
            held = ", ".join(self.adapters) or "none"
            raise UnknownAdapter(f"there is no adapter {name[:100]!r} here; this server has {held}")
        return self.loaded_adapters[name]


@contextmanager
def _deep_prompts(layers: nn.ModuleList, prompts: torch.Tensor) -> Iterator[None]:
    pairs = zip(layers, prompts, strict=True)
    hooks = [layer.register_forward_pre_hook(_adds(prompt)) for layer, prompt in pairs]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _adds(prompt: torch.Tensor) -> Any:
    """A hook that adds a deep prompt `[batch, prefix, hidden]` to the first positions of a block's input."""

    def add(_layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *rest = args
        length = prompt.shape[1]
        return (torch.cat([hidden[:, :length] + prompt, hidden[:, length:]], dim=1), *rest)

    return add
