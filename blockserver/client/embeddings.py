"""The two ends of a model that the client computes itself: the embedding of tokens, and the head over the last block's output.

It is the family's own causal model with no blocks at all, so scaled embeddings, tied weights, final norms and soft caps are
transformers' own. Knows nothing of peers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from blockserver.model.blocks import loading_quietly
from blockserver.model.checkpoint import open_checkpoint
from blockserver.model.cutting import causal_class, cut_config, let_embeddings_in
from blockserver.model.facts import read_config
from blockserver.model.families import block_tensor, family_of
from swarm.errors import LocalError


class Ends:
    """Embedding and head of one model, in `dtype`. Safe to call from one thread at a time."""

    def __init__(self, model: PreTrainedModel) -> None:
        family = family_of(model.config.model_type)
        base: Any = model.base_model
        self._model = model
        self._entry_norm: nn.Module = getattr(base, family.entry_norm) if family.entry_norm else nn.Identity()
        self._entry_scale: float = getattr(base, family.entry_scale) if family.entry_scale else 1.0
        # The head is computed by the model with no layers, which must not treat a block's output as embeddings.
        let_embeddings_in(base, family)

    @property
    def dtype(self) -> torch.dtype:
        return self._model.dtype

    @torch.inference_mode()
    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """`[batch, tokens]` of token ids -> hidden states `[batch, tokens, hidden]`, the input of block 0."""
        embedded: torch.Tensor = self._model.get_input_embeddings()(input_ids)
        return cast(torch.Tensor, self._entry_norm(embedded * self._entry_scale))

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of the last block -> logits `[batch, vocabulary]` of the last token."""
        return self.last_logits(hidden, 1)[:, -1]

    @torch.inference_mode()
    def last_logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """The same of the last `count` tokens, `[batch, count, vocabulary]`."""
        logits: torch.Tensor = self._model(inputs_embeds=hidden[:, -count:].to(self.dtype), use_cache=False).logits
        return logits


def load_ends(folder: Path, dtype: torch.dtype) -> Ends:
    """Reads the tensors that are no block's. Raises LocalError, naming file or tensors, where something is missing."""
    config = cut_config(read_config(folder), 0, 0)
    family = family_of(config.model_type)
    checkpoint = open_checkpoint(folder)
    tensors = checkpoint.read([name for name in checkpoint.files if not block_tensor(name, family)])
    with loading_quietly():
        model, report = cast(Any, causal_class(config)).from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise LocalError(f"{folder} lacks {', '.join(missing[:5])}, which the client computes itself")
    return Ends(model.eval().requires_grad_(False))
