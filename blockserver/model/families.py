"""Which families of models can be served, and what of each lies outside its blocks.

The one table of families: a name is in it only because the tests compare its cut spans with its whole model. Knows names and
reasons; builds and reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from swarm.errors import LocalError


def _grouped(config: Any) -> int:
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def _ungrouped(config: Any) -> int:
    return int(config.num_attention_heads)


def _falcon(config: Any) -> int:
    """Grouped heads of the newer architecture are copied out before they are kept."""
    return 1 if config.multi_query and not config.new_decoder_architecture else int(config.num_attention_heads)


def _doubled_where_sliding(config: Any) -> int:
    return _grouped(config) * (2 if "sliding_attention" in config.layer_types else 1)


@dataclass(frozen=True, slots=True)
class Family:
    """Names of modules in the family's model without its head. Defaults are what most families use."""

    layers: str = "layers"
    norm: str = "norm"
    """What follows the last block; the client's."""

    entry_norm: str | None = None
    """A norm between the embedding and block 0; the client's."""

    entry_scale: str | None = None
    """A factor, of this name in config and model, on whatever enters the model as embeddings; the client's."""

    kept_heads: Callable[[Any], int] = _grouped
    """How many heads' keys and values a block keeps of each token; where blocks differ, of the largest."""

    rows_in_step: bool = False
    """All rows of a batch must be at the same position: it is read from the cache, not from the position ids."""


_PLAIN = Family()
_NORM_LAST = Family(norm="final_layernorm")
_SCALED = Family(entry_scale="embedding_multiplier")

_ALIKE = """
apertus arcee axk1 cohere cohere2 cohere2_moe cwm deepseek_v2 deepseek_v3 doge dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe
flex_olmo gemma gemma2 gemma3_text glm glm4 glm4_moe glm4_moe_lite gpt_oss helium hunyuan_v1_dense hunyuan_v1_moe hy_v3
iquestcoder jais2 jetmoe kolibri1 laguna llama mellum minimax_m2 ministral ministral3 mistral mixtral
nemotron olmo olmo2 olmo3 olmoe phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 solar_open stablelm starcoder2
vaultgemma youtu
"""

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "bloom": Family(
            layers="h", norm="ln_f", entry_norm="word_embeddings_layernorm", kept_heads=_ungrouped, rows_in_step=True
        ),
        "falcon": Family(layers="h", norm="ln_f", kept_heads=_falcon),
        "gpt_neox": Family(norm="final_layer_norm", kept_heads=_ungrouped),
        "granite": _SCALED,
        "granite_swa": _SCALED,
        "granitemoe": _SCALED,
        "granitemoe_swa": _SCALED,
        "granitemoeshared": _SCALED,
        "hyperclovax": _SCALED,
        "llama4_text": Family(rows_in_step=True),
        "mimo_v2_flash": Family(kept_heads=_doubled_where_sliding),
        "persimmon": _NORM_LAST,
        "phi": _NORM_LAST,
        **dict.fromkeys(_ALIKE.split(), _PLAIN),
    }
)

_REFUSED_TOGETHER: Mapping[str, str] = {
    """
    bailing_hybrid bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 lfm2_moe mamba mamba2 minimax nemotron_h
    olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next recurrent_gemma rwkv xlstm zamba zamba2
    """: "their layers keep a running state, which cannot go back to an earlier token as sessions must",
    "biogpt gpt2 gpt_bigcode gpt_neo opt xglm": "they add a table of positions to the embeddings, outside the blocks",
    """
    aria gemma3 gemma4 llama4 llava mistral3 mllama phi4_multimodal qwen2_5_vl qwen2_vl qwen3_vl qwen3_5 qwen3_5_moe
    """: "they wrap a language model together with other ones; serve a checkpoint of the language model alone",
    "gemma3n gemma3n_text gemma4_text": "their blocks share keys and values or embeddings, so that none can be served alone",
    "diffllama gpt_neox_japanese minicpm3": "what a block computes depends on its number, in a way that a cut does not keep",
    "afmoe": "they scale embeddings by a switch of their own, inside the model",
    "bitnet": "their checkpoints are stored quantised",
    "longcat_flash": "each of their layers keeps two sets of keys and values",
}

REFUSED: Mapping[str, str] = MappingProxyType(
    {name: reason for names, reason in _REFUSED_TOGETHER.items() for name in names.split()}
)
"""Families that somebody may well try, and why they are not served."""


def family_of(model_type: str) -> Family:
    """LocalError, with the reason, where models of this type are not served."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if model_type in REFUSED:
        raise LocalError(f"models of the family {model_type!r} cannot be served: {REFUSED[model_type]}")
    raise LocalError(
        f"models of the family {model_type!r} cannot be served: nobody has compared their blocks with the whole model yet; "
        "docs/models.md lists the families that can"
    )


def block_tensor(name: str, family: Family) -> re.Match[str] | None:
    """Groups `index` and `rest` where the name is that of a block's tensor, with (`model.layers.3.…`) or without an owner."""
    return re.fullmatch(rf"(?:[A-Za-z_]+\.)?{family.layers}\.(?P<index>\d+)\.(?P<rest>.+)", name)
