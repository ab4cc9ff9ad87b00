"""Builders of tiny random models, saved as ordinary checkpoints: real families, a few thousand weights each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

BLOCKS = 6
VOCABULARY = 96

_COMMON: dict[str, Any] = {
    "num_hidden_layers": BLOCKS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_ALTERNATING = [("full" if block % 3 == 2 else "sliding") + "_attention" for block in range(BLOCKS)]

FAMILIES: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 8, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "tie_word_embeddings": True},
    "gemma3_text": {"head_dim": 8, "sliding_window": 4, "layer_types": _ALTERNATING, "tie_word_embeddings": True},
    "llama": {},
    "mistral": {"sliding_window": 4},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": {},
    "phi3": {},
    "qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
"""What each family's config needs beyond the common part. Windows are shorter than the tests' texts, so that they matter."""


def tiny_model(family: str) -> PreTrainedModel:
    """Random weights, the same ones at each call, large enough to tell tokens apart."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**_COMMON, **FAMILIES[family]})
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    return model


def save_tiny_model(folder: Path, family: str = "llama", shard_size: str = "40KB") -> PreTrainedModel:
    """Writes it as safetensors shards, and returns the whole model to compare with."""
    model = tiny_model(family)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model
