"""LoRA adapters in peft's format: small matrices beside a block's own, applied to those requests that name them.

They go in by hooks for the length of one pass, so the blocks themselves stay as they are: quantised, shared with parts, kept
over a move. Only plain LoRA within the blocks is taken; whatever else an adapter holds would change the answer unseen, so it is
refused with its name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from blockserver.model.families import Family, block_tensor
from swarm.errors import LocalError, RemoteError
from swarm.wire.spans import Span

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
SAVED_UNDER = "base_model.model."
_MATRIX = re.compile(r"(?P<module>.+)\.lora_(?P<letter>[AB])\.weight")

MUST_BE_OFF = ("use_dora", "modules_to_save", "layer_replication", "target_parameters", "fan_in_fan_out", "lora_bias")
"""Switches of peft's that make more of an adapter than two matrices beside a linear layer."""


class UnknownAdapter(RemoteError):
    """The caller named an adapter that this server has not loaded."""

    permanent = True


@dataclass(frozen=True, slots=True)
class Pair:
    """`x -> scale * up(down(x))`, added to what the layer itself makes of x."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float

    def hook(self, _module: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        low = nn.functional.linear(args[0].to(self.down.dtype), self.down)
        return output + (nn.functional.linear(low, self.up) * self.scale).to(output.dtype)


@dataclass(frozen=True, slots=True)
class Adapter:
    """`blocks` says for each block of the span which of its modules have a pair beside them."""

    name: str
    blocks: Mapping[int, Mapping[str, Pair]]

    @property
    def nbytes(self) -> int:
        return sum(pair.down.nbytes + pair.up.nbytes for pairs in self.blocks.values() for pair in pairs.values())

    @contextmanager
    def applied(self, layers: nn.ModuleList, span: Span) -> Iterator[None]:
        """While this lasts, `layers`, which are blocks `span`, compute with the adapter."""
        hooks = [
            layer.get_submodule(path).register_forward_hook(pair.hook)
            for block, layer in zip(span, layers, strict=True)
            for path, pair in self.blocks.get(block, {}).items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


@dataclass
class _Halves:
    matrices: dict[str, torch.Tensor] = field(default_factory=dict)


def load_adapter(
    folder: Path, layers: nn.ModuleList, span: Span, family: Family, dtype: torch.dtype, device: torch.device
) -> Adapter:
    """The part of the adapter in `folder` that belongs to `span`. LocalError, with the reason, where it does not fit."""
    config = _read_config(folder)
    halves: dict[tuple[int, str], _Halves] = {}
    with _opened(folder / WEIGHTS) as file:
        for name in file.keys():  # noqa: SIM118 - it is no dictionary
            block, module, letter = _place(folder, name, family)
            if block in span:
                matrix = file.get_tensor(name).to(device, dtype)
                halves.setdefault((block, module), _Halves()).matrices[letter] = matrix
    blocks: dict[int, dict[str, Pair]] = {}
    for (block, path), half in halves.items():
        pair = _pair(folder, f"block {block}'s {path}", half, _scale(config, f"{family.layers}.{block}.{path}"))
        _require_fit(folder, layers[block - span.start], path, pair, f"block {block}'s {path}")
        blocks.setdefault(block, {})[path] = pair
    return Adapter(folder.resolve().name, blocks)


def adapter_bytes(folder: Path) -> int:
    """What the whole adapter takes, for `capacity`; LocalError where there is none."""
    _read_config(folder)
    try:
        return (folder / WEIGHTS).stat().st_size
    except OSError as error:
        raise LocalError(f"{folder} holds no {WEIGHTS}") from error


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kind = config["peft_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(f"{folder} is no adapter of peft's: its {CONFIG} cannot be read ({type(error).__name__})") from error
    if kind != "LORA":
        raise LocalError(f"the adapter {folder.name} is of the kind {kind}; only LORA can be served")
    on = [name for name in MUST_BE_OFF if config.get(name)]
    if config.get("bias", "none") != "none":
        on.append("bias")
    if on:
        raise LocalError(f"the adapter {folder.name} uses {', '.join(on)}, which cannot be served")
    return dict(config)


def _opened(file: Path) -> safe_open:
    try:
        return safe_open(str(file), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise LocalError(f"{file} cannot be read as safetensors: {error}") from error


def _place(folder: Path, name: str, family: Family) -> tuple[int, str, str]:
    """Block, module within it, and A or B."""
    within = block_tensor(name.removeprefix(SAVED_UNDER), family)
    matrix = _MATRIX.fullmatch(within["rest"]) if within else None
    if within is None or matrix is None:
        raise LocalError(f"the adapter {folder.name} changes {name}, which is no linear layer of a block")
    return int(within["index"]), matrix["module"], matrix["letter"]


def _scale(config: dict[str, Any], module: str) -> Callable[[int], float]:
    """A function of the pair's rank. Patterns are peft's: the end of a module's name, or a regular expression for it."""
    alpha = float(config.get("lora_alpha", 8))
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", f"model.{module}"):
            alpha = float(value)
            break
    return lambda rank: alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _pair(folder: Path, where: str, half: _Halves, scale: Callable[[int], float]) -> Pair:
    down, up = half.matrices.get("A"), half.matrices.get("B")
    if down is None or up is None or down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
        raise LocalError(f"the adapter {folder.name} has no two matrices that go together for {where}")
    return Pair(down, up, scale(down.shape[0]))


def _require_fit(folder: Path, layer: nn.Module, path: str, pair: Pair, where: str) -> None:
    try:
        module: Any = layer.get_submodule(path)
    except AttributeError:
        raise LocalError(f"the adapter {folder.name} changes {where}, which this model does not have") from None
    sizes = getattr(module, "in_features", None), getattr(module, "out_features", None)
    if sizes != (pair.down.shape[1], pair.up.shape[0]):
        raise LocalError(f"the adapter {folder.name} does not fit {where}: it is for another model")
