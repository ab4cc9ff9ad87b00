"""How many blocks fit a card: memory per block by model and precision, and how far the figure may be believed. Pure.

The monitor sees no weights. A model's shape comes from a small table of well-known ones, from the visitor, or from the number
of parameters in its name; which of these it was is said with the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PRECISIONS = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "nf4": 4.25 / 8}
"""Bytes of one parameter; 4-bit weights carry a quarter of a bit of scales."""

RESERVE_SHARE = 0.2
"""Left alone for activations, the runtime and what else the card does; `sepal serve` asks the card itself and may take more."""

CACHE_TOKENS = 4_096
"""Attention cache of all sessions together, in each block: `sepal serve`'s default."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One decoder block of the Llama kind; `experts` feed-forward parts with a router where there are several."""

    blocks: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int = 1

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        router = self.hidden * self.experts if self.experts > 1 else 0
        return attention + 3 * self.hidden * self.inner * self.experts + router + 2 * self.hidden

    def cache_bytes_per_token(self, precision: str) -> float:
        return 2 * self.kv_heads * self.head_dim * (4.0 if precision == "float32" else 2.0)


KNOWN = {
    "llama31405b": Shape(126, 16_384, 53_248, 128, 8, 128),
    "llama3370b": Shape(80, 8_192, 28_672, 64, 8, 128),
    "llama3170b": Shape(80, 8_192, 28_672, 64, 8, 128),
    "llama370b": Shape(80, 8_192, 28_672, 64, 8, 128),
    "llama270b": Shape(80, 8_192, 28_672, 64, 8, 128),
    "llama318b": Shape(32, 4_096, 14_336, 32, 8, 128),
    "llama38b": Shape(32, 4_096, 14_336, 32, 8, 128),
    "llama213b": Shape(40, 5_120, 13_824, 40, 40, 128),
    "llama27b": Shape(32, 4_096, 11_008, 32, 32, 128),
    "mixtral8x22b": Shape(56, 6_144, 16_384, 48, 8, 128, experts=8),
    "mixtral8x7b": Shape(32, 4_096, 14_336, 32, 8, 128, experts=8),
    "mistral7b": Shape(32, 4_096, 14_336, 32, 8, 128),
    "qwen2572b": Shape(80, 8_192, 29_568, 64, 8, 128),
    "smollm2135m": Shape(30, 576, 1_536, 9, 3, 64),
}

_IN_NAME = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Fit:
    """`num_blocks` is None where a block's size is not known; 0 where not even one fits. Bytes are for one block."""

    num_blocks: int | None
    model_blocks: int
    weight_bytes: float | None
    cache_bytes: float | None
    source: str
    words: str


def shape_of(name: str, blocks: int) -> Shape | None:
    """The well-known model of this name, if the swarm's has as many blocks."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().replace("meta-", ""))
    return next((shape for key, shape in KNOWN.items() if key in plain and shape.blocks == blocks), None)


def fit(
    name: str,
    blocks: int,
    memory_gb: float,
    precision: str,
    parameters_b: float | None = None,
    cache_tokens: int = CACHE_TOKENS,
) -> Fit:
    """`parameters_b`: billions of parameters of the whole model, where the visitor knows better than we do."""
    shape = None if parameters_b is not None else shape_of(name, blocks)
    if shape is not None:
        cache = cache_tokens * shape.cache_bytes_per_token(precision)
        return _fitted(blocks, memory_gb, shape.parameters * PRECISIONS[precision], cache, "this model's known shape")
    total, source = (parameters_b, "the number of parameters that you gave") if parameters_b else _named(name)
    if total is None:
        return Fit(
            None,
            blocks,
            None,
            None,
            "",
            "How large a block of this model is, is not known here: say how many parameters it has.",
        )
    return _fitted(blocks, memory_gb, total * 1e9 / blocks * PRECISIONS[precision], None, source)


def _named(name: str) -> tuple[float | None, str]:
    found = _IN_NAME.search(name.lower())
    return (float(found[1]), "the number of parameters in its name") if found else (None, "")


def _fitted(blocks: int, memory_gb: float, weights: float, cache: float | None, source: str) -> Fit:
    each = weights + (cache or 0.0)
    usable = memory_gb * 1e9 * (1 - RESERVE_SHARE)
    count = min(blocks, int(usable // each))
    counted = f"{_size(weights)} of weights" + (f" and {_size(cache)} of cache" if cache else "; cache not counted")
    if count == 0:
        words = f"Not even one block fits: it takes {_size(each)}, and of {memory_gb:g} GB {_size(usable)} can be used."
    else:
        whole = " (the whole model)" if count == blocks else ""
        fits = f"{count} block{'s' if count > 1 else ''}{whole}"
        words = f"Fits about {fits}: {_size(count * each)} of {memory_gb:g} GB; each takes {counted}."
    return Fit(count, blocks, weights, cache, source, f"{words} Reckoned from {source}.")


def _size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
