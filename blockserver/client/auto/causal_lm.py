"""A transformers model whose blocks are elsewhere: whatever takes a causal language model takes this one.

Embedding, final norm and head are the family's own, computed here; between them hidden states go through the swarm, in
sessions where a cache is given and in passes without one otherwise, then with gradients. Knows tensors of tokens; text is
its caller's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from blockserver.client.auto import rows
from blockserver.client.auto.blocks import RemoteBlocks
from blockserver.client.auto.cache import RemoteCache
from blockserver.client.auto.connection import Connection
from blockserver.client.auto.generating import Generating
from blockserver.client.auto.inference_session import InferenceSession
from blockserver.client.discovery import RouteFinder
from blockserver.client.inspect.lens import LensRow, lens_ids, read
from blockserver.client.inspect.walk import NOWHERE, Edit, Stops, everywhere
from blockserver.client.model import RemoteModel
from blockserver.client.training.prompts import LearnedPrompts
from blockserver.client.training.saving import save_trained
from blockserver.model.cache_folder import Hold
from blockserver.model.cutting import causal_class
from swarm.errors import LocalError
from swarm.routing import Hop

LEARNED = "learned.safetensors"

IGNORED = frozenset({"num_items_in_batch", "output_attentions"})
"""What trainers and generation pass along; attention weights stay with the servers, so they are given to nobody."""


class DistributedCausalLM(Generating, PreTrainedModel, GenerationMixin):  # type: ignore[misc, no-untyped-call]
    """Make it with `AutoDistributedModelForCausalLM.from_pretrained`; close it, or use it as a context manager.

    One call at a time, but for generation, which threads may do side by side.
    """

    main_input_name = "input_ids"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: PreTrainedConfig, connection: Connection, remote: RemoteModel) -> None:
        super().__init__(copy.deepcopy(config))
        self.remote = remote
        self.connection = connection
        self.blocks = RemoteBlocks(connection, remote, remote.facts.whole)
        """All blocks, to be called, sliced and looked into."""
        self.stops: Stops = NOWHERE
        self.active_session: InferenceSession | None = None
        self.files: Hold | None = None
        """Keeps files that were fetched for it where they are."""
        cast(Any, self).post_init()
        self.ends = remote.ends.parts
        self.learned: LearnedPrompts | None = None
        self.loss_type = "ForCausalLM"
        cast(Any, self).eval()

    # --------------------------------------------------------------------------------------------------------- forward

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        cache: RemoteCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """As transformers' causal models. With a `RemoteCache` tokens follow those in it, without gradients; without one each
        call is a pass of its own. `attention_mask` may hide padding, on the left or, without a cache, on the right.

        Raises MissingBlocks or another RemoteError where the swarm cannot serve, LocalError for what servers cannot be told.
        """
        _refuse(others)
        if cache is not None and not isinstance(cache, RemoteCache):
            raise LocalError("the servers keep the cache: pass no other than `model.inference_session` or generate() makes")
        ends = self.remote.ends
        if (input_ids is None) == (inputs_embeds is None):
            raise LocalError("give either input_ids or inputs_embeds")
        embeds = ends.embedding(input_ids.to(self.device)) if input_ids is not None else cast(torch.Tensor, inputs_embeds)
        wanted = output_hidden_states or (output_hidden_states is None and bool(self.config.output_hidden_states))
        stops = everywhere(self.blocks.span, self.stops.edits) if wanted else self.stops
        cache = None if use_cache is False else cache
        hidden, seen = self._through(embeds, attention_mask, cache, stops)
        states = (*[seen[block] for block in self.blocks.span], ends.normed(hidden)) if wanted else None
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = ends.head(hidden[:, kept])
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        output = CausalLMOutputWithPast(loss=loss, logits=logits, cache=cache, hidden_states=states)
        return output if return_dict in (None, True) else output.to_tuple()

    def _through(
        self, embeds: torch.Tensor, mask: torch.Tensor | None, cache: RemoteCache | None, stops: Stops
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Learned prompts go before the first token, and what comes out for them is left out."""
        batch, columns, _ = embeds.shape
        learned = self.learned if cache is None or not cache.columns else None
        shallow, deep = learned(batch) if learned is not None else (None, None)
        prefix = 0 if shallow is None else shallow.shape[1]
        if shallow is not None:
            embeds = torch.cat([shallow.to(embeds), embeds], dim=1)
        hidden = self.remote.ends.enter(embeds)
        if cache is not None:
            with torch.no_grad():
                hidden, seen = cache.walk(hidden, mask, stops, prefix, deep)
        else:
            groups = rows.together(rows.left_padding(mask, batch, columns, right_allowed=True))
            hidden, seen = self.blocks.walk(hidden, stops, deep, groups, prefix)
        if not prefix:
            return hidden, seen
        return hidden[:, prefix:], {boundary: state[:, prefix:] for boundary, state in seen.items()}

    # ---------------------------------------------------------------------------------------------------- where and how

    @contextmanager
    def editing(self, edits: Mapping[int, Edit]) -> Iterator[None]:
        """Within, what enters block b is what `edits[b]` makes of it, in every call; `edits[number of blocks]` is for what
        leaves the last one. An edit gets `[batch, tokens, hidden]`; learned prompts come first, padding holds zeros."""
        stops = Stops(dict(edits))
        stops.check(self.blocks.span)
        before, self.stops = self.stops, stops
        try:
            yield
        finally:
            self.stops = before

    @contextmanager
    def through(self, *path: Hop) -> Iterator[None]:
        """Within, only these servers are asked: `Hop(peer_id, Span(0, 10))` one after another."""
        before, self.blocks = self.blocks, self.blocks.through(*path)
        try:
            yield
        finally:
            self.blocks = before

    @torch.no_grad()
    def logit_lens(self, input_ids: torch.Tensor, top: int = 5) -> list[LensRow]:
        """Which tokens would come after the last of `[tokens]` or `[1, tokens]`, by what is known at each boundary. Edits that
        are in force count."""
        ids = lens_ids(self.remote, input_ids.flatten().tolist(), top)
        entering = self.remote.ends.embed(torch.tensor([ids], device=self.device))
        states = self.blocks.boundaries(entering, edits=self.stops.edits)
        return [read(self.remote.ends, boundary, state, top) for boundary, state in enumerate(states)]

    @property
    def transformer(self) -> Self:
        """With `h`, Petals' name for the blocks: `model.transformer.h`."""
        return self

    @property
    def h(self) -> RemoteBlocks:
        return self.blocks

    def get_input_embeddings(self) -> nn.Module:
        return self.remote.ends.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.remote.ends.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return cast(nn.Module, cast(Any, self.remote.ends.model).get_output_embeddings())

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        cast(Any, self.remote.ends.model).set_output_embeddings(new_embeddings)

    def save_pretrained(self, save_directory: str | PathLike[str], **_options: Any) -> None:  # type: ignore[override]
        """Keeps what was trained, in `learned.safetensors`; the model itself is where it came from. LocalError where nothing
        is trainable."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        save_trained(self, folder / LEARNED)

    # ------------------------------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Leaves the swarm. May be called twice."""
        if isinstance(self.remote.router, RouteFinder) and not self.connection.closed:
            self.connection.run(self.remote.router.close())
        self.remote.close()
        self.connection.close()
        if self.files is not None:
            self.files.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def named_after_its_family(config: PreTrainedConfig) -> type[DistributedCausalLM]:
    """Pipelines know models by their class's name: the family's, for what is the family's model but for where it runs."""
    name = causal_class(config).__name__
    return cast(type[DistributedCausalLM], type(name, (DistributedCausalLM,), {"config_class": type(config)}))


def _refuse(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if value is not None and value is not False and name not in IGNORED:
            raise LocalError(f"{name} cannot be told to the servers of this model's blocks")
    if others.get("output_attentions"):
        raise LocalError("attention weights stay with the servers; hidden states can be had (output_hidden_states=True)")
