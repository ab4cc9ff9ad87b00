"""What a model's folder says of itself: its family, its size, and what one of its blocks costs.

Knows configs and which families can be cut; reads no weights. `read_facts` refuses whatever could not be cut rightly, with
the reason, so that a server can say no before anything is loaded.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from swarm.errors import BadRecord, LocalError
from swarm.wire.keys import default_prefix
from swarm.wire.spans import Span

CUTTABLE = frozenset(
    {
        "gemma",
        "gemma2",
        "gemma3_text",
        "llama",
        "mistral",
        "mixtral",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen3",
        "qwen3_moe",
    }
)
"""Families whose cut spans are compared with the whole model in the tests. Another may differ silently, so it is refused."""

ATTENTION_KINDS = frozenset({"full_attention", "sliding_attention"})
"""Layer types whose keys and values fit the session cache as they are."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`dtype` is the checkpoint's own. Bytes are for that dtype; `bytes_in(dtype)` scales them."""

    folder: Path
    prefix: str
    num_blocks: int
    hidden_size: int
    vocab_size: int
    dtype: torch.dtype
    kv_heads: int
    head_dim: int
    parameters_per_block: int

    @property
    def whole(self) -> Span:
        return Span(0, self.num_blocks)

    def cache_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Keys and values of one token in one block."""
        return 2 * self.kv_heads * self.head_dim * dtype.itemsize

    def bytes_per_block(self, dtype: torch.dtype) -> int:
        """Weights of one block; where blocks differ, of the largest."""
        return self.parameters_per_block * dtype.itemsize


def read_facts(folder: Path) -> ModelFacts:
    """Raises LocalError where the folder is no model, or one that cannot be cut."""
    config = read_config(folder)
    heads = config.num_attention_heads
    return ModelFacts(
        folder=folder,
        prefix=_prefix(folder),
        num_blocks=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        dtype=config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        parameters_per_block=_largest_block(config),
    )


def read_config(folder: Path) -> PreTrainedConfig:
    """The config of a family that can be cut; LocalError otherwise."""
    if not folder.is_dir():
        raise LocalError(f"there is no model folder {folder}")
    if not (folder / "config.json").is_file():
        raise LocalError(f"{folder} holds no config.json, so it is no model folder")
    family = _family(folder / "config.json")
    if family not in CUTTABLE:
        raise LocalError(
            f"models of the family {family!r} cannot be cut into blocks yet; these can: " + ", ".join(sorted(CUTTABLE))
        )
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    # Door: each family's config class checks in its own way, and raises what it likes.
    except Exception as error:
        raise LocalError(f"{folder / 'config.json'} cannot be read: {str(error).splitlines()[0][:300]}") from error
    _refuse_what_cannot_be_cut(config)
    return config


def _family(file: Path) -> str:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["model_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise LocalError(f"{file} cannot be read as a model's config ({type(error).__name__}: {error})") from error


def _refuse_what_cannot_be_cut(config: PreTrainedConfig) -> None:
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION_KINDS
    if other:
        raise LocalError(f"layers of the type {', '.join(sorted(other))} cannot be served yet")
    if getattr(config, "mlp_only_layers", None) or getattr(config, "decoder_sparse_step", 1) != 1:
        raise LocalError("models that mix dense and expert layers by their index cannot be served yet")


def base_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The family's model without its head."""
    return cast(type[PreTrainedModel], AutoModel._model_mapping[type(config)])


def causal_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    return cast(type[PreTrainedModel], AutoModelForCausalLM._model_mapping[type(config)])


def cut_config(config: PreTrainedConfig, start: int, end: int) -> PreTrainedConfig:
    """The same family with layers `start` to `end - 1` only. Lists that say something of each layer are sliced."""
    cut = copy.deepcopy(config)
    for name, value in list(_per_layer(config).items()):
        setattr(cut, name, value[start:end])
    cut.num_hidden_layers = end - start
    return cut


def without_vocabulary(config: PreTrainedConfig) -> PreTrainedConfig:
    """A span has no use for embeddings: one row stands for them, so that no memory goes to a table never read."""
    cut = copy.deepcopy(config)
    cut.vocab_size, cut.pad_token_id = 1, None
    return cut


def _per_layer(config: PreTrainedConfig) -> dict[str, list[Any]]:
    return {
        name: value
        for name, value in vars(config).items()
        if isinstance(value, list) and name.endswith("_types") and len(value) == config.num_hidden_layers
    }


def _largest_block(config: PreTrainedConfig) -> int:
    with torch.device("meta"):
        model = base_class(config)(without_vocabulary(config))
    return max(sum(weight.numel() for weight in layer.parameters()) for layer in cast(nn.ModuleList, model.layers))


def _prefix(folder: Path) -> str:
    try:
        return default_prefix(folder.resolve().name)
    except BadRecord as error:
        raise LocalError(f"the folder's name gives no prefix for the DHT: {error.detail}") from error
