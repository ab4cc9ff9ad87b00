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
from blockserver.model.families import Family, block_tensor, family_of
from swarm.errors import LocalError


class Ends:
    """Embedding and head of one model, in `dtype`. Safe to call from one thread at a time.

    `embed` and `logits` keep no gradients; `enter`, `normed` and `head` do, as whoever trains needs them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        family = family_of(model.config.model_type)
        base = _without_head(model, family)
        self.model = model
        self._base = base
        self._entry_norm: nn.Module = getattr(base, family.entry_norm) if family.entry_norm else nn.Identity()
        self._entry_scale: float = getattr(base, family.entry_scale) if family.entry_scale else 1.0
        # The head is computed by the model with no layers, which must not treat a block's output as embeddings.
        let_embeddings_in(base, family)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def parts(self) -> nn.ModuleDict:
        """All modules with weights: the model with no blocks, and the norm before block 0 where the family has one."""
        return nn.ModuleDict({"model": cast(nn.Module, self.model), "entry_norm": self._entry_norm})

    @torch.inference_mode()
    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """`[batch, tokens]` of token ids -> hidden states `[batch, tokens, hidden]`, the input of block 0."""
        return self.enter(self.embedding(input_ids))

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of the last block -> logits `[batch, vocabulary]` of the last token."""
        return self.last_logits(hidden, 1)[:, -1]

    @torch.inference_mode()
    def last_logits(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """The same of the last `count` tokens, `[batch, count, vocabulary]`."""
        return self.head(hidden[:, -count:])

    def embedding(self, input_ids: torch.Tensor) -> torch.Tensor:
        """What transformers calls `inputs_embeds`, `[batch, tokens, hidden]`."""
        return cast(torch.Tensor, self.model.get_input_embeddings()(input_ids))

    def enter(self, inputs_embeds: torch.Tensor) -> torch.Tensor:
        """`inputs_embeds` -> the input of block 0, of the same shape: scaled or normed where the family does so."""
        return cast(torch.Tensor, self._entry_norm(inputs_embeds * self._entry_scale))

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last block's output after the final norm, which transformers gives as the last of the hidden states."""
        return cast(torch.Tensor, self._base(inputs_embeds=hidden.to(self.dtype), use_cache=False).last_hidden_state)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of the last block -> logits `[batch, tokens, vocabulary]`."""
        model = cast(nn.Module, self.model)
        return cast(torch.Tensor, model(inputs_embeds=hidden.to(self.dtype), use_cache=False).logits)


def _without_head(model: PreTrainedModel, family: Family) -> Any:
    """The module that holds the blocks. Not `base_model`: Llama 4's is the model itself, as its names are those of a part."""
    return next(module for module in model.modules() if hasattr(module, family.layers))


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
