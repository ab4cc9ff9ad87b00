"""Attention masks for rows that are not in step: each row of a batch has its own positions, and gaps where it holds no token.

Knows which keys a query may see by the kind of its layer. Knows neither cache nor model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NO_TOKEN = -1
"""The position of a key that is no token of its row: padding, or a slot not yet written."""

Masks = torch.Tensor | Mapping[str, torch.Tensor]


def row_masks(config: Any, queries: torch.Tensor, keys: torch.Tensor, dtype: torch.dtype) -> Masks:
    """What to add to the attention scores, `[batch, 1, queries, keys]`, by layer type where the family has several.

    `queries` `[batch, queries]` and `keys` `[batch, keys]` are positions within their row; `NO_TOKEN` hides a key.
    """
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return {kind: _added(_visible(config, kind, queries, keys), dtype) for kind in set(kinds)}
    kind = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    return _added(_visible(config, kind, queries, keys), dtype)


def _visible(config: Any, kind: str, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    query, key = queries[:, None, :, None], keys[:, None, None, :]
    visible = (key != NO_TOKEN) & (key <= query)
    if kind == "sliding_attention":
        return visible & (query - key < config.sliding_window)
    if kind == "chunked_attention":
        return visible & (query // config.attention_chunk_size == key // config.attention_chunk_size)
    return visible


def _added(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # Not minus infinity: a query that sees nothing (padding) would turn into NaN, and with it what follows.
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
