"""How many blocks of known models fit on known cards, and that what is counted is what is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.model import capacity
from blockserver.model.blocks import load_span
from blockserver.model.capacity import blocks_that_fit, choose_num_blocks, free_bytes_of, needs
from blockserver.model.facts import ModelFacts, read_facts
from blockserver.model.quantisation import INT8, NF4, NONE
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.tiny_models import save_tiny_model

GIB = 1024**3
CARDS = (8, 12, 16, 24, 48, 80)
CACHE_TOKENS = 8_192

_LLAMA: dict[str, Any] = {"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128_256}
_MIXTRAL: dict[str, Any] = {"model_type": "mixtral", "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2}

CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "Llama-3.1-70B": _LLAMA
    | {"hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "Llama-3.1-405B": _LLAMA
    | {"hidden_size": 16_384, "intermediate_size": 53_248, "num_hidden_layers": 126, "num_attention_heads": 128},
    "Mixtral-8x7B": _MIXTRAL
    | {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "Mixtral-8x22B": _MIXTRAL
    | {"hidden_size": 6144, "intermediate_size": 16_384, "num_hidden_layers": 56, "num_attention_heads": 48},
    "Qwen3-32B": {
        "model_type": "qwen3",
        "hidden_size": 5120,
        "intermediate_size": 25_600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "DeepSeek-V3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
}

PARAMETERS_PER_BLOCK = {
    "Llama-3.1-8B": 218_112_000,
    "Llama-3.1-70B": 855_654_400,
    "Llama-3.1-405B": 3_187_703_808,
    "Mixtral-8x7B": 1_451_270_144,
    "Mixtral-8x22B": 2_504_060_928,
    "Qwen3-32B": 487_598_336,
    "DeepSeek-V3": 11_507_286_016,
}
"""By hand from the shapes: attention, norms, MLP or router and experts."""

EXPECTED: dict[tuple[str, str], tuple[int, ...]] = {
    ("Llama-3.1-8B", NONE): (14, 23, 32, 32, 32, 32),
    ("Llama-3.1-8B", INT8): (27, 32, 32, 32, 32, 32),
    ("Llama-3.1-8B", NF4): (32, 32, 32, 32, 32, 32),
    ("Llama-3.1-70B", NONE): (3, 6, 8, 13, 27, 45),
    ("Llama-3.1-70B", INT8): (7, 11, 16, 25, 52, 80),
    ("Llama-3.1-70B", NF4): (13, 22, 30, 48, 80, 80),
    ("Llama-3.1-405B", NONE): (0, 1, 2, 3, 7, 12),
    ("Llama-3.1-405B", INT8): (1, 3, 4, 6, 14, 24),
    ("Llama-3.1-405B", NF4): (3, 5, 8, 13, 27, 47),
    ("Mixtral-8x7B", NONE): (2, 3, 5, 7, 16, 27),
    ("Mixtral-8x7B", INT8): (4, 7, 9, 15, 31, 32),
    ("Mixtral-8x7B", NF4): (8, 13, 18, 29, 32, 32),
    ("Mixtral-8x22B", NONE): (1, 2, 2, 4, 9, 15),
    ("Mixtral-8x22B", INT8): (2, 4, 5, 8, 18, 31),
    ("Mixtral-8x22B", NF4): (4, 7, 10, 17, 35, 56),
    ("Qwen3-32B", NONE): (6, 10, 14, 22, 47, 64),
    ("Qwen3-32B", INT8): (12, 20, 28, 43, 64, 64),
    ("Qwen3-32B", NF4): (23, 37, 51, 64, 64, 64),
    ("DeepSeek-V3", NONE): (0, 0, 0, 0, 2, 3),
    ("DeepSeek-V3", INT8): (0, 0, 1, 1, 4, 6),
    ("DeepSeek-V3", NF4): (1, 1, 2, 3, 7, 13),
}
"""Blocks on each of `CARDS`, with a cache of `CACHE_TOKENS`, in bfloat16 or quantised."""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFacts]:
    folder = tmp_path_factory.mktemp("models")
    read = {}
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
        read[name] = read_facts(folder / name)
    return read


@pytest.mark.parametrize("model", CONFIGS)
def test_the_weights_of_a_block_are_counted_from_the_config(facts: dict[str, ModelFacts], model: str) -> None:
    assert facts[model].parameters_per_block == PARAMETERS_PER_BLOCK[model]


@pytest.mark.parametrize(("model", "precision"), EXPECTED)
def test_known_models_on_known_cards(facts: dict[str, ModelFacts], model: str, precision: str) -> None:
    fitting = tuple(_fit(card * GIB, facts[model], precision) for card in CARDS)
    assert fitting == EXPECTED[model, precision]


@pytest.mark.parametrize("precision", [NONE, INT8, NF4])
@pytest.mark.parametrize("model", CONFIGS)
def test_what_fits_does_fit_and_one_more_would_not(facts: dict[str, ModelFacts], model: str, precision: str) -> None:
    for card in CARDS:
        count = _fit(card * GIB, facts[model], precision)
        each = needs(facts[model], torch.bfloat16, CACHE_TOKENS, quantisation=precision, device="cuda")
        assert each.fixed + count * each.block <= card * GIB or count == 0
        if count < facts[model].num_blocks:
            assert each.fixed + (count + 1) * each.block > card * GIB * (1 - capacity.SPARE_SHARE)


def _fit(free: int, model: ModelFacts, precision: str, **more: Any) -> int:
    return blocks_that_fit(free, model, torch.bfloat16, CACHE_TOKENS, quantisation=precision, device="cuda", **more)


def test_cache_and_adapters_take_their_part(facts: dict[str, ModelFacts]) -> None:
    model = facts["Llama-3.1-70B"]
    plain = needs(model, torch.bfloat16, 0)
    full = needs(model, torch.bfloat16, 100_000, adapter_bytes=800_000_000)
    assert full.cache == 100_000 * 2 * 8 * 128 * 2
    assert full.adapters == 800_000_000 / 80
    assert full.block == plain.block + full.cache + full.adapters
    assert _fit(24 * GIB, model, NONE) > _fit(24 * GIB, model, NONE, adapter_bytes=40_000_000_000)


def test_latent_attention_keeps_little(facts: dict[str, ModelFacts]) -> None:
    assert facts["DeepSeek-V3"].cache_bytes_per_token(torch.bfloat16) == (512 + 64) * 2


@pytest.mark.parametrize("precision", [NONE, INT8, NF4])
def test_what_is_counted_for_a_block_is_what_it_takes(tmp_path: Path, precision: str) -> None:
    """Loaded and weighed: a block wide enough for its scales to be small beside its weights."""
    save_tiny_model(tmp_path / "model", "mixtral", wide=True)
    module = load_span(tmp_path / "model", Span(0, 1), torch.bfloat16, quantisation=precision)
    held = _held(module.layers[0])
    counted = module.facts.bytes_per_block(torch.bfloat16, precision)
    assert held == counted if precision == NONE else abs(held - counted) < 0.15 * counted


def _held(layer: torch.nn.Module) -> int:
    total = sum(tensor.nbytes for tensor in layer.parameters())
    for module in layer.modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "stored_bytes"):
            total += module.stored_bytes()
        elif getattr(weight, "SCB", None) is not None:
            total += weight.SCB.nbytes
        elif getattr(weight, "quant_state", None) is not None:
            total += weight.quant_state.absmax.nbytes + weight.quant_state.state2.absmax.nbytes
    return total


def test_the_operators_number_wins_but_for_the_models_end(tiny: tuple[Path, PreTrainedModel]) -> None:
    model = read_facts(tiny[0])
    assert choose_num_blocks(3, model, torch.float32, 128) == 3
    assert choose_num_blocks(99, model, torch.float32, 128) == model.num_blocks


def test_without_one_it_is_what_fits(tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_facts(tiny[0])
    each = needs(model, torch.float32, 128)
    monkeypatch.setattr(capacity, "free_bytes_of", lambda _device: int((each.fixed + 4.5 * each.block) / 0.95) + 1)
    assert choose_num_blocks(None, model, torch.float32, 128) == 4
    monkeypatch.setattr(capacity, "free_bytes_of", lambda _device: each.fixed)
    with pytest.raises(LocalError, match=r"not even one block fits: it takes .+ of cache"):
        choose_num_blocks(None, model, torch.float32, 128)


def test_free_memory_is_the_devices_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _device: (7, 9))
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 5}))
    assert [free_bytes_of(torch.device(name)) for name in ("cuda:1", "mps", "cpu")] == [7, 5, 5]
