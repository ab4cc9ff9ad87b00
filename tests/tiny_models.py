"""Builders of tiny random models, saved as ordinary checkpoints: real families, a few thousand weights each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

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
_SLIDING: dict[str, Any] = {"sliding_window": 4, "layer_types": _ALTERNATING}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 2,
    "n_group": 1,
    "topk_group": 1,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
_MULTIPLIERS: dict[str, Any] = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 0.5,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.3,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {},
    "arcee": {},
    "axk1": {**_ROUTED, **_LATENT},
    "bloom": {},
    "cohere": {"logit_scale": 2.0},
    "cohere2": {**_SLIDING, "logit_scale": 2.0},
    "cohere2_moe": {**_SLIDING, **_EXPERTS},
    "cwm": _SLIDING,
    "deepseek_v2": {**_ROUTED, **_LATENT},
    "deepseek_v3": {**_ROUTED, **_LATENT},
    "doge": {},
    "dots1": {**_ROUTED, **_SLIDING},
    "ernie4_5": {},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16, "moe_layer_start_index": 2},
    "exaone4": {**_SLIDING, "head_dim": 8},
    "exaone_moe": {**_SLIDING, **_EXPERTS, "mlp_layer_types": ["dense", "dense", *["sparse"] * 4]},
    "falcon": {},
    "flex_olmo": {"num_experts": 4, "num_experts_per_tok": 2},
    "gemma": {"head_dim": 8, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "tie_word_embeddings": True},
    "gemma3_text": {"head_dim": 8, **_SLIDING, "tie_word_embeddings": True},
    "glm": {"head_dim": 8},
    "glm4": {"head_dim": 8},
    "glm4_moe": {"head_dim": 8, **_ROUTED},
    "glm4_moe_lite": {**_ROUTED, **_LATENT},
    "gpt_neox": {"use_parallel_residual": True},
    "gpt_oss": {**_SLIDING, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granite": _MULTIPLIERS,
    "granite_swa": {**_MULTIPLIERS, **_SLIDING},
    "granitemoe": {**_MULTIPLIERS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoe_swa": {**_MULTIPLIERS, **_SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2},
    "granitemoeshared": {
        **_MULTIPLIERS,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 16,
    },
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "hy_v3": {"head_dim": 8, **_EXPERTS, "first_k_dense_replace": 2},
    "hyperclovax": _MULTIPLIERS,
    "iquestcoder": {},
    "jais2": {},
    "jetmoe": {"num_key_value_heads": 2, "kv_channels": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "kolibri1": {**_SLIDING, "head_dim": 8},
    "laguna": {**_SLIDING, **_EXPERTS, "head_dim": 8},
    "llama": {},
    "llama4_text": {
        "head_dim": 8,
        "intermediate_size_mlp": 40,
        "num_local_experts": 4,
        "moe_layers": [1, 4],
        "no_rope_layers": [1, 1, 0, 1, 1, 0],
        "attention_chunk_size": 4,
        "layer_types": [("full" if block % 3 == 2 else "chunked") + "_attention" for block in range(BLOCKS)],
        "attn_temperature_tuning": True,
        "floor_scale": 3,
    },
    "mellum": {**_SLIDING, **_EXPERTS, "head_dim": 8},
    "mimo_v2_flash": {**_SLIDING, **_ROUTED, "head_dim": 8, "v_head_dim": 6},
    "minimax_m2": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8},
    "ministral": {**_SLIDING, "head_dim": 8},
    "ministral3": {"head_dim": 8, "sliding_window": 4},
    "mistral": {"sliding_window": 4},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "nemotron": {},
    "olmo": {"clip_qkv": 1.0},
    "olmo2": {},
    "olmo3": _SLIDING,
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "persimmon": {"num_key_value_heads": 4},
    "phi": {},
    "phi3": {},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 16, "mlp_only_layers": [0, 4]},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    "qwen3_moe": {"head_dim": 8, **_EXPERTS, "decoder_sparse_step": 2},
    "seed_oss": {"head_dim": 8},
    "smollm3": {**_SLIDING, "use_sliding_window": True, "no_rope_layers": [1, 1, 0, 1, 1, 0]},
    "solar_open": {"head_dim": 8, **_ROUTED},
    "stablelm": {"use_parallel_residual": True},
    "starcoder2": {"sliding_window": 4},
    "vaultgemma": {"head_dim": 8, **_SLIDING, "query_pre_attn_scalar": 8, "tie_word_embeddings": True},
    "youtu": _LATENT,
}
"""What each family's config needs beyond the common part. Windows are shorter than the tests' texts, so that they matter, and
every kind of layer that a family knows is there."""

VARIANTS: dict[str, dict[str, Any]] = {
    "falcon-alibi": {"alibi": True, "multi_query": False},
    "falcon-new": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "stablelm-normed": {"qk_layernorm": True, "use_qkv_bias": True},
    "deepseek_v2-plain": {**_LATENT, **_ROUTED, "q_lora_rank": None, "first_k_dense_replace": 5},
    "gemma2-capped": {**FAMILIES["gemma2"], "final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.0},
}
"""Families with another set of switches; the part before the dash is the family."""


WIDE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 64, "head_dim": 32}
"""Wide enough for the tiles in which quantised matrices are computed."""


def tiny_config(family: str, wide: bool = False) -> PreTrainedConfig:
    model_type, *_ = family.split("-")
    given = {**_COMMON, **{**FAMILIES, **VARIANTS}[family]}
    if wide:
        given |= {name: value for name, value in WIDE.items() if name in given}
    config: PreTrainedConfig = AutoConfig.for_model(model_type, **given)
    return config


def tiny_model(family: str, wide: bool = False) -> PreTrainedModel:
    """Random weights, the same ones at each call, large enough to tell tokens apart."""
    torch.manual_seed(0)
    kind: Any = AutoModelForCausalLM
    model: PreTrainedModel = kind.from_config(tiny_config(family, wide), dtype=torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    return model


def save_tiny_model(folder: Path, family: str = "llama", shard_size: str = "40KB", wide: bool = False) -> PreTrainedModel:
    """Writes it as safetensors shards, and returns the whole model to compare with."""
    model = tiny_model(family, wide)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model
