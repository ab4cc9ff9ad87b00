"""Prompt tuning: vectors that are learned in place of words, before the text ("ptune") and also at every block ("deep_ptune").

Knows shapes; how they reach the blocks is the model's.
"""

from __future__ import annotations

import torch
from torch import nn

from swarm.errors import LocalError

SHALLOW, DEEP = "ptune", "deep_ptune"
"""Petals' names for the two."""


class LearnedPrompts(nn.Module):
    """`shallow` `[prefix, hidden]` stands before the embedded text. `deep` `[blocks, prefix, hidden]` is added, block by block,
    to what enters it at these positions; None for shallow prompts only. In float32, as optimisers like it."""

    def __init__(self, mode: str, prefix: int, embedding: torch.Tensor, blocks: int) -> None:
        """Shallow prompts begin as spread as the table of embeddings `[vocabulary, hidden]`, deep ones as zeros, which change
        nothing."""
        super().__init__()
        if mode not in (SHALLOW, DEEP):
            raise LocalError(f"the mode of prompt tuning is {SHALLOW!r} or {DEEP!r}, not {mode!r}")
        if prefix < 1:
            raise LocalError(f"learned prompts take at least one position, not {prefix}")
        hidden = embedding.shape[-1]
        spread = float(embedding.detach().float().std())
        self.mode = mode
        self.shallow = nn.Parameter(torch.randn(prefix, hidden, device=embedding.device) * spread)
        self.deep = nn.Parameter(torch.zeros(blocks, prefix, hidden, device=embedding.device)) if mode == DEEP else None

    def forward(self, batch: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`[batch, prefix, hidden]` and `[blocks, batch, prefix, hidden]`."""
        shallow = self.shallow.expand(batch, -1, -1)
        return shallow, None if self.deep is None else self.deep[:, None].expand(-1, batch, -1, -1)
