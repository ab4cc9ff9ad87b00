"""Training on the client's side without touching the blocks: the head itself, or a few numbers beside it (LoRA).

LoRA: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021). Knows modules; not the swarm.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from swarm.errors import LocalError


class LoraLinear(nn.Module):
    """`base` as it is, plus a product of two thin matrices, which begins as zero. In float32, as optimisers like it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        if not 1 <= rank <= min(base.in_features, base.out_features):
            raise LocalError(f"the rank is 1 to {min(base.in_features, base.out_features)}, not {rank}")
        self.base = base
        self.scale = alpha / rank
        device = base.weight.device
        self.down = nn.Parameter(torch.randn(rank, base.in_features, device=device) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    @property
    def weight(self) -> torch.Tensor:
        """The base's: whoever asks for the head's weight means the table of the vocabulary."""
        return self.base.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        added = hidden.to(self.down.dtype) @ self.down.T @ self.up.T * self.scale
        return cast(torch.Tensor, self.base(hidden) + added.to(hidden.dtype))


def add_lora(model: PreTrainedModel, rank: int = 8, alpha: float = 16.0) -> LoraLinear:
    """Puts a LoRA beside the model's head; its two matrices are what is trained. LocalError where there is one already."""
    lora = LoraLinear(_plain_head(model), rank, alpha)
    cast(Any, model).set_output_embeddings(lora)
    return lora


def train_head(model: PreTrainedModel) -> nn.Linear:
    """Makes the head trainable. One that is tied to the embedding becomes a copy, so that the embedding stays as it is."""
    head = _plain_head(model)
    own = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None, device=head.weight.device)
    with torch.no_grad():
        own.weight = nn.Parameter(head.weight.detach().clone())
        if head.bias is not None:
            own.bias = nn.Parameter(head.bias.detach().clone())
    cast(Any, model).set_output_embeddings(own)
    return own


def _plain_head(model: PreTrainedModel) -> nn.Linear:
    head = cast(Any, model).get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise LocalError("the head was replaced already")
    return head
