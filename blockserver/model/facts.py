"""What a model's folder says of itself: its family, its size, and what one of its blocks costs.

Reads configs and no weights. `read_facts` refuses whatever could not be served rightly, with the reason, so that a server can
say no before anything is loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig

from blockserver.model.cutting import layers_of, outline
from blockserver.model.families import family_of
from blockserver.model.quantisation import NONE, count_quantisable, stored_bits
from swarm.errors import BadRecord, LocalError
from swarm.wire.keys import default_prefix
from swarm.wire.spans import Span

ATTENTION_KINDS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Layer types whose keys and values fit the session cache as they are."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`dtype` is the checkpoint's own. What is said of one block holds for the largest, where blocks differ."""

    folder: Path
    prefix: str
    num_blocks: int
    hidden_size: int
    vocab_size: int
    dtype: torch.dtype
    kv_heads: int
    key_width: int
    value_width: int
    parameters_per_block: int
    quantisable_per_block: int
    """Of these, how many are in matrices that can be kept in fewer bits."""

    widest: int
    """Numbers of one token in the widest layer of a block."""

    @property
    def whole(self) -> Span:
        return Span(0, self.num_blocks)

    def cache_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Keys and values of one token in one block."""
        return (self.key_width + self.value_width) * dtype.itemsize

    def bytes_per_block(self, dtype: torch.dtype, quantisation: str = NONE) -> int:
        """Weights of one block."""
        plain = self.parameters_per_block - self.quantisable_per_block
        return plain * dtype.itemsize + math.ceil(self.quantisable_per_block * stored_bits(quantisation, dtype) / 8)


def read_facts(folder: Path) -> ModelFacts:
    """Raises LocalError where the folder is no model, or one that cannot be served."""
    config = read_config(folder)
    heads, keys, values = _cached(config)
    block = max(layers_of(outline(config)), key=lambda layer: sum(weight.numel() for weight in layer.parameters()))
    return ModelFacts(
        folder=folder,
        prefix=_prefix(folder),
        num_blocks=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        dtype=config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32,
        kv_heads=heads,
        key_width=keys,
        value_width=values,
        parameters_per_block=sum(weight.numel() for weight in block.parameters()),
        quantisable_per_block=count_quantisable(block),
        widest=max(max(weight.shape[-2:]) for weight in block.parameters()),
    )


def read_config(folder: Path) -> PreTrainedConfig:
    """The config of a model that can be served; LocalError otherwise."""
    if not folder.is_dir():
        raise LocalError(f"there is no model folder {folder}")
    if not (folder / "config.json").is_file():
        raise LocalError(f"{folder} holds no config.json, so it is no model folder")
    require_servable(_read_json(folder / "config.json"))
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    # Door: each family's config class checks in its own way, and raises what it likes.
    except Exception as error:
        raise LocalError(f"{folder / 'config.json'} cannot be read: {str(error).splitlines()[0][:300]}") from error
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION_KINDS
    if other:
        raise LocalError(f"layers of the type {', '.join(sorted(other))} cannot be served: they keep no keys and values")
    return config


def require_servable(config: Mapping[str, Any]) -> None:
    """Judges the content of a config.json by itself, so that a refusal needs no download. LocalError with the reason."""
    family_of(str(config.get("model_type")))
    stored = config.get("quantization_config")
    if stored:
        method = stored.get("quant_method") if isinstance(stored, Mapping) else None
        raise LocalError(
            f"the checkpoint is stored quantised ({method or 'in a way it does not name'}); use one in plain weights"
        )
    if config.get("per_layer_config"):
        raise LocalError("models whose layers have configs of their own (per_layer_config) cannot be served")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"{file} cannot be read as a model's config: {error}") from error
    if not isinstance(content, dict):
        raise LocalError(f"{file} cannot be read as a model's config: it is no JSON object")
    return content


def _cached(config: Any) -> tuple[int, int, int]:
    """Heads, and numbers kept of one token in one block, as keys and as values."""
    if getattr(config, "kv_lora_rank", None):
        # Multi-head latent attention: the latent and one rotary part for all heads.
        return 1, config.kv_lora_rank, config.qk_rope_head_dim
    heads = family_of(config.model_type).kept_heads(config)
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return heads, heads * each, heads * (getattr(config, "v_head_dim", None) or each)


def model_name(folder: Path) -> str:
    """The folder's own name; for one fetched from a hub, which lies in `<owner>--<name>/<commit>`, the repository's."""
    resolved = folder.resolve()
    return resolved.parent.name.rpartition("--")[2] if "--" in resolved.parent.name else resolved.name


def _prefix(folder: Path) -> str:
    try:
        return default_prefix(model_name(folder))
    except BadRecord as error:
        raise LocalError(f"the folder's name gives no prefix for the DHT: {error.detail}") from error
