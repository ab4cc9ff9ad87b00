"""How many blocks fit into memory, weights and attention cache counted."""

from __future__ import annotations

import psutil
import torch

from blockserver.facts import ModelFacts
from swarm.errors import LocalError

RESERVE_SHARE = 0.2
"""Share of free memory left alone: activations, the runtime, and whatever else the machine does."""


def blocks_that_fit(free_bytes: int, facts: ModelFacts, dtype: torch.dtype, cache_tokens: int) -> int:
    """At most the whole model; 0 where not even one block fits."""
    each = facts.bytes_per_block(dtype) + cache_tokens * facts.cache_bytes_per_token(dtype)
    return min(facts.num_blocks, int(free_bytes * (1 - RESERVE_SHARE)) // each)


def choose_num_blocks(wanted: int | None, facts: ModelFacts, dtype: torch.dtype, cache_tokens: int) -> int:
    """What the operator wants, or what fits; LocalError where that is nothing."""
    if wanted is not None:
        return min(wanted, facts.num_blocks)
    free = psutil.virtual_memory().available
    count = blocks_that_fit(free, facts, dtype, cache_tokens)
    if count < 1:
        each = facts.bytes_per_block(dtype) + cache_tokens * facts.cache_bytes_per_token(dtype)
        raise LocalError(f"not even one block fits: it takes {each / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    return count
