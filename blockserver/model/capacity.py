"""How many blocks fit into a device's memory: weights, attention cache, adapters, and what computing itself takes.

A pure count; `free_bytes_of` alone asks the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from blockserver.model.facts import ModelFacts
from blockserver.model.quantisation import NONE
from swarm.errors import LocalError

PASS_TOKENS = 1_024
"""Tokens of the longest pass that memory is kept for: longer prompts are computed in chunks."""

ACTIVATION_COPIES = 16
"""Tensors as wide as the widest layer that live at once in a pass, attention's scores among them."""

RUNTIME_BYTES = {"cuda": 700_000_000, "mps": 300_000_000, "cpu": 300_000_000}
"""Context and kernels of a GPU, or the libraries' own buffers, that are taken besides tensors."""

SPARE_SHARE = 0.05
"""Of the free memory: allocators leave gaps, and what else the machine does takes its share."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What serving takes, in bytes: `block` for each block, all included, and `fixed` once."""

    weights: int
    cache: int
    adapters: int
    fixed: int

    @property
    def block(self) -> int:
        return self.weights + self.cache + self.adapters


def needs(
    facts: ModelFacts,
    dtype: torch.dtype,
    cache_tokens: int,
    *,
    quantisation: str = NONE,
    device: str = "cpu",
    adapter_bytes: int = 0,
) -> Needs:
    """`cache_tokens` of all sessions together; `adapter_bytes` of all adapters in full, of which each block takes its part."""
    weights = facts.bytes_per_block(dtype, quantisation)
    # While a block is quantised, its plain form is still there, in the machine's own memory.
    loading = facts.bytes_per_block(dtype) if quantisation != NONE and device == "cpu" else 0
    activations = ACTIVATION_COPIES * PASS_TOKENS * facts.widest * dtype.itemsize
    return Needs(
        weights=weights,
        cache=cache_tokens * facts.cache_bytes_per_token(dtype),
        adapters=-(-adapter_bytes // facts.num_blocks),
        fixed=RUNTIME_BYTES.get(device, RUNTIME_BYTES["cuda"]) + max(loading, activations),
    )


def blocks_that_fit(
    free_bytes: int,
    facts: ModelFacts,
    dtype: torch.dtype,
    cache_tokens: int,
    *,
    quantisation: str = NONE,
    device: str = "cpu",
    adapter_bytes: int = 0,
) -> int:
    """At most the whole model; 0 where not even one block fits."""
    each = needs(facts, dtype, cache_tokens, quantisation=quantisation, device=device, adapter_bytes=adapter_bytes)
    usable = int(free_bytes * (1 - SPARE_SHARE)) - each.fixed
    return max(0, min(facts.num_blocks, usable // each.block))


def free_bytes_of(device: torch.device) -> int:
    """Free memory of the device now; on Apple's chips it is the machine's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def choose_num_blocks(
    wanted: int | None,
    facts: ModelFacts,
    dtype: torch.dtype,
    cache_tokens: int,
    *,
    quantisation: str = NONE,
    device: torch.device | None = None,
    adapter_bytes: int = 0,
) -> int:
    """What the operator wants, or what fits; LocalError where that is nothing."""
    if wanted is not None:
        return min(wanted, facts.num_blocks)
    where = device or torch.device("cpu")
    free = free_bytes_of(where)
    count = blocks_that_fit(
        free, facts, dtype, cache_tokens, quantisation=quantisation, device=where.type, adapter_bytes=adapter_bytes
    )
    if count < 1:
        each = needs(facts, dtype, cache_tokens, quantisation=quantisation, device=where.type, adapter_bytes=adapter_bytes)
        raise LocalError(
            f"not even one block fits: it takes {each.block / 1e9:.1f} GB ({each.weights / 1e9:.1f} of weights, "
            f"{each.cache / 1e9:.1f} of cache) beside {each.fixed / 1e9:.1f} GB for computing, and {free / 1e9:.1f} GB are free"
        )
    return count
