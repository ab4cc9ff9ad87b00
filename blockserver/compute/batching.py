"""How the steps of several sessions become one pass of a family's own model.

Each row has its own length, so positions and masks are made here and handed to the model, which would otherwise take all
rows for equally long. How a family wants its masks is tried out on the module itself, against the same steps one by one: a
family that gives other results, or an error (ALiBi takes no ready masks), is computed one session after another. Knows
masks and modules; not sessions, memory or threads.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch

from blockserver.compute.cache import SessionCache
from blockserver.compute.slots import Slots, Window
from blockserver.model.blocks import SpanModule

log = logging.getLogger(__name__)

Masks = torch.Tensor | dict[str, torch.Tensor]

MOST_ROWS = 64
"""Of one pass: beyond that a CPU is bound by arithmetic, and a step of all takes long."""

TRIED_WINDOW = 4
"""Sliding window for the trial, so that a few tokens tell whether the window is heeded."""

TRIED_LENGTHS = (9, 6)

TRIAL_TOLERANCE = {torch.float32: 1e-3}
TRIAL_TOLERANCE_16_BIT = 3e-2
"""Mean difference as a share of the mean change that the blocks make: a wrong mask gives far more."""


@dataclass(frozen=True, slots=True)
class MaskStyle:
    """`by_layer_type`: one mask for each type of layer, by name. `window`: the span of sliding layers, or of all layers."""

    by_layer_type: bool
    window: int | None

    def masks(self, positions: torch.Tensor, end: int, dtype: torch.dtype) -> Masks:
        """Additive, `[rows, 1, 1, end]`, for one new token in each row."""
        places = torch.arange(end, device=positions.device)
        at = positions[:, None]
        beyond = places > at
        if self.window is None or (not self.by_layer_type and self.window >= end):
            full = _additive(beyond, dtype)
            return {"full_attention": full, "sliding_attention": full} if self.by_layer_type else full
        left_behind = beyond | (places <= at - self.window)
        if not self.by_layer_type:
            return _additive(left_behind, dtype)
        return {"full_attention": _additive(beyond, dtype), "sliding_attention": _additive(left_behind, dtype)}


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    zeros = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return zeros.masked_fill_(hidden, torch.finfo(dtype).min)[:, None, None]


@dataclass(frozen=True, slots=True)
class Together:
    """One pass over the rows of a window. `turning_point`: rows on both sides of that position need two passes."""

    style: MaskStyle
    turning_point: int | None

    def side(self, position: int) -> bool:
        return self.turning_point is not None and position >= self.turning_point

    def step(self, blocks: SpanModule, hidden: torch.Tensor, window: Window, adapter: str | None = None) -> torch.Tensor:
        """`hidden` `[rows, 1, hidden]`, in the window's order."""
        masks = self.style.masks(window.positions, window.end, hidden.dtype)
        return blocks.step_rows(hidden, window, window.positions[:, None], masks, adapter)


def find_together(module: SpanModule) -> Together | None:
    """None where steps must be computed one by one."""
    config = module.config
    if not module.can_step_rows:
        return None
    turning_point, grows = _rope(config)
    if grows:
        log.info("steps of several sessions are computed one by one: the rotary table depends on the longest of them")
        return None
    styles = [MaskStyle(bool(getattr(config, "layer_types", None)), getattr(config, "sliding_window", None))]
    styles += [MaskStyle(False, styles[0].window), MaskStyle(False, None)]
    errors = {style: _trial_error(module, style) for style in dict.fromkeys(styles)}
    style, error = min(errors.items(), key=lambda item: item[1])
    if error > TRIAL_TOLERANCE.get(module.dtype, TRIAL_TOLERANCE_16_BIT):
        log.info("steps of several sessions are computed one by one: in one pass they would differ by %.1g", error)
        return None
    return Together(style, turning_point)


def _rope(config: Any) -> tuple[int | None, bool]:
    """Where a rotary table changes for the whole batch with its longest row, and whether it does so at every length."""
    given = getattr(config, "rope_parameters", None) or {}
    tables = [table for table in (given, *given.values()) if isinstance(table, dict)]
    kinds = {str(table.get("rope_type")) for table in tables}
    points = [table.get("original_max_position_embeddings") for table in tables if table.get("rope_type") == "longrope"]
    turning_point = points[0] or getattr(config, "original_max_position_embeddings", None) if points else None
    return turning_point, "dynamic" in kinds or (bool(points) and turning_point is None)


@torch.inference_mode()
def _trial_error(module: SpanModule, style: MaskStyle) -> float:
    """Two sessions of unequal lengths: one step of each alone, and the same steps in one pass."""
    source = torch.Generator().manual_seed(0)

    def noise(tokens: int) -> torch.Tensor:
        drawn = torch.randn(1, tokens, module.facts.hidden_size, generator=source)
        return drawn.to(device=module.device, dtype=module.dtype)

    # A mask's window is read from the config when the mask is made, so that a short one can be tried.
    small = style if style.window is None else MaskStyle(style.by_layer_type, TRIED_WINDOW)
    if getattr(module.config, "sliding_window", None) is not None:
        module = module.under(sliding_window=TRIED_WINDOW)
    try:
        caches = [SessionCache(len(module.span), length + 1) for length in TRIED_LENGTHS]
        for cache, length in zip(caches, TRIED_LENGTHS, strict=True):
            module.forward(noise(length), cache)
            cache.advance(length)
        tokens = [noise(1) for _ in caches]
        alone = torch.cat([module.forward(token, cache) for token, cache in zip(tokens, caches, strict=True)])
        slots = Slots(64)
        for cache in caches:
            slots.join(cache)
        slots.gather(caches)
        hidden = torch.cat(tokens)
        together = Together(small, None).step(module, hidden, slots.window)
    # Door: families refuse ready masks each in its own way; all of them mean that this style is not theirs.
    except Exception as error:
        log.debug("a trial of %s ended with %s: %s", style, type(error).__name__, error)
        return float("inf")
    change = (alone - hidden).float().abs().mean().clamp_min(1e-12)
    difference = float((alone.float() - together.float()).abs().mean() / change)
    return float("inf") if math.isnan(difference) else difference
