"""A span is loaded from its own tensors only, and what is missing or cannot be served is said. (Families: test_families.)"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.embeddings import load_ends
from blockserver.compute.cache import SessionCache
from blockserver.model.blocks import load_span, read_facts
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.tiny_models import BLOCKS, save_tiny_model


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    save_tiny_model(folder)
    return folder


def test_going_back_in_a_session_forgets_what_came_after(llama: Path) -> None:
    module, hidden = load_span(llama, Span(0, 3), torch.float32), torch.randn(1, 8, 32)
    cache = SessionCache(3, 8)
    with torch.inference_mode():
        expected = module.forward(hidden)
        module.forward(torch.cat([hidden[:, :3], torch.randn(1, 4, 32)], dim=1), cache)
        cache.advance(7)
        cache.rollback(3)
        output = module.forward(hidden[:, 3:], cache)
    torch.testing.assert_close(output, expected[:, 3:])


def test_deep_prompts_are_added_to_the_first_positions_of_each_block(llama: Path) -> None:
    module, hidden, prompts = load_span(llama, Span(0, 2), torch.float32), torch.randn(1, 5, 32), torch.randn(2, 1, 2, 32)
    with torch.inference_mode():
        expected = hidden
        for block, prompt in zip(Span(0, 2), prompts, strict=True):
            expected = expected.clone()
            expected[:, :2] += prompt
            expected = module.part(Span(block, block + 1)).forward(expected)
        torch.testing.assert_close(module.forward(hidden, prompts=prompts), expected)
        # The hooks are gone afterwards.
        assert not torch.allclose(module.forward(hidden), expected)


def test_facts_say_what_a_block_and_a_cached_token_cost(llama: Path) -> None:
    facts = read_facts(llama)
    layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48 + 2 * 32
    assert (facts.num_blocks, facts.hidden_size, facts.prefix) == (BLOCKS, 32, "tiny")
    assert facts.bytes_per_block(torch.float32) == 4 * layer
    assert facts.cache_bytes_per_token(torch.float16) == 2 * 2 * 8 * 2


def test_only_the_shards_of_the_span_need_to_be_there(llama: Path) -> None:
    """The embedding, the head and the other blocks may lie elsewhere, or nowhere."""
    files = json.loads((llama / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for name, file in files.items() if name.startswith("model.layers.2.")}
    for shard in llama.glob("*.safetensors"):
        if shard.name not in needed:
            shard.unlink()
    assert len(needed) < len(set(files.values()))
    assert load_span(llama, Span(2, 3), torch.float32).span == Span(2, 3)


def test_a_missing_shard_is_named_before_anything_is_loaded(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = json.loads((llama / "model.safetensors.index.json").read_text())["weight_map"]
    absent = files["model.layers.3.mlp.up_proj.weight"]
    (llama / absent).unlink()
    monkeypatch.setattr("blockserver.model.checkpoint.safe_open", None)
    with pytest.raises(LocalError, match=absent):
        load_span(llama, Span(0, 4), torch.float32)


def test_a_tensor_that_its_shard_does_not_hold_is_named(llama: Path) -> None:
    index = llama / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    other = content["weight_map"]["model.embed_tokens.weight"]
    name = "model.layers.5.mlp.up_proj.weight"
    assert content["weight_map"][name] != other
    content["weight_map"][name] = other
    index.write_text(json.dumps(content))
    with pytest.raises(LocalError, match=r"model\.layers\.5\.mlp\.up_proj\.weight"):
        load_span(llama, Span(5, 6), torch.float32)


def test_a_tensor_that_no_file_holds_is_named(llama: Path) -> None:
    index = llama / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["model.layers.5.mlp.up_proj.weight"]
    index.write_text(json.dumps(content))
    with pytest.raises(LocalError, match=r"mlp\.up_proj\.weight"):
        load_span(llama, Span(5, 6), torch.float32)


def test_a_broken_shard_is_named(llama: Path) -> None:
    files = json.loads((llama / "model.safetensors.index.json").read_text())["weight_map"]
    broken = llama / files["model.layers.0.mlp.up_proj.weight"]
    broken.write_bytes(broken.read_bytes()[:20])
    with pytest.raises(LocalError, match=f"{broken.name} cannot be read"):
        load_span(llama, Span(0, 1), torch.float32)


def test_an_index_may_not_name_files_outside_its_folder(llama: Path) -> None:
    index = llama / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.0.mlp.up_proj.weight"] = "../other.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(LocalError, match="outside its folder"):
        load_span(llama, Span(0, 1), torch.float32)


def test_what_is_no_model_is_said_plainly(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(LocalError, match="there is no model folder"):
        load_span(tmp_path / "nowhere", Span(0, 1), torch.float32)
    with pytest.raises(LocalError, match=r"holds no config\.json"):
        load_span(tmp_path, Span(0, 1), torch.float32)
    with pytest.raises(LocalError, match="has blocks 0:6"):
        load_span(llama, Span(4, 7), torch.float32)
    for file in llama.glob("*.safetensors*"):
        file.unlink()
    with pytest.raises(LocalError, match=r"neither model\.safetensors\.index\.json nor"):
        load_span(llama, Span(0, 1), torch.float32)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mamba"}, "keep a running state"),
        ({"model_type": None}, "family 'None' cannot be served"),
        ({"num_attention_heads": "four"}, r"config\.json cannot be read"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, r"stored quantised \(mxfp4\)"),
        ({"model_type": "qwen3", "layer_types": ["linear_attention"] * BLOCKS}, "keep no keys and values"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_reason(llama: Path, changes: dict[str, object], reason: str) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(LocalError, match=reason):
        read_facts(llama)


def test_a_cut_that_would_build_another_kind_of_layer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a config says which layers have experts in a way that nobody has thought of."""
    save_tiny_model(tmp_path, "deepseek_v3")
    load_span(tmp_path, Span(1, 4), torch.float32)
    monkeypatch.setattr("blockserver.model.cutting.COUNTS", ())
    with pytest.raises(LocalError, match="block 2 cannot be cut out: alone it would differ in mlp"):
        load_span(tmp_path, Span(1, 4), torch.float32)


def test_models_may_be_loaded_by_several_threads_at_once(tmp_path: Path) -> None:
    """transformers replaces functions of its own while it loads; overlapping, two would leave them replaced for good."""
    whole = save_tiny_model(tmp_path, "gemma")
    tie = PreTrainedModel.tie_weights
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: load_span(tmp_path, Span(0, 2), torch.float32), range(40)))
    assert PreTrainedModel.tie_weights is tie
    head = load_ends(tmp_path, torch.float32).model.get_output_embeddings()
    assert head.weight.equal(whole.get_output_embeddings().weight)
