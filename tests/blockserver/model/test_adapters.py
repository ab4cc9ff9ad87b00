"""LoRA adapters: a request that names one is answered as by the merged model, others as by the model itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from blockserver.compute.cache import SessionCache
from blockserver.model.adapters import adapter_bytes
from blockserver.model.blocks import SpanModule, add_adapters, load_span
from swarm.errors import LocalError, RemoteError
from swarm.wire.spans import Span
from tests.tiny_models import BLOCKS, save_tiny_model

HIDDEN = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(3))
TARGETS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
RANK, ALPHA = 4, 12


def save_adapter(folder: Path, whole: PreTrainedModel, targets: tuple[str, ...] = TARGETS, **changes: Any) -> Path:
    """As peft saves it: two matrices for each linear layer that is named."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": list(targets), **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    source, tensors = torch.Generator().manual_seed(hash(folder.name) % 1000), {}
    for name, module in whole.named_modules():
        if name.endswith(targets):
            rows, columns = module.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(RANK, columns, generator=source) * 0.1
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(rows, RANK, generator=source) * 0.1
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged(model: Path, adapter: Path, target: Path, scale: float = ALPHA / RANK) -> Path:
    """The checkpoint with the adapter's product added to its weights."""
    target.mkdir()
    weights: dict[str, torch.Tensor] = {}
    for shard in model.glob("*.safetensors"):
        weights |= load_file(shard)
    matrices = load_file(adapter / "adapter_model.safetensors")
    for name, down in matrices.items():
        if name.endswith(".lora_A.weight"):
            up = matrices[name.replace("lora_A", "lora_B")]
            weights[name.removeprefix("base_model.model.").replace(".lora_A", "")] += scale * up @ down
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text((model / "config.json").read_text())
    return target


@torch.inference_mode()
def answer(module: SpanModule, adapter: str | None = None) -> torch.Tensor:
    cache = SessionCache(BLOCKS, HIDDEN.shape[1])
    first = module.forward(HIDDEN[:, :4], cache, adapter=adapter)
    cache.advance(4)
    return torch.cat([first, module.forward(HIDDEN[:, 4:], cache, adapter=adapter)], dim=1)


def test_a_request_that_names_an_adapter_is_answered_as_by_the_merged_model(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    """Two adapters at once, each request its own; also in a part of the span."""
    folder, whole = tiny
    span = Span(1, 5)
    module = load_span(folder, span, torch.float32)
    plain = answer(module)
    adapters = [save_adapter(tmp_path / name, whole) for name in ("poet", "lawyer")]
    add_adapters(module, adapters)
    for adapter in adapters:
        alone = load_span(merged(folder, adapter, tmp_path / f"{adapter.name}-merged"), span, torch.float32)
        torch.testing.assert_close(answer(module, adapter.name), answer(alone))
        part = Span(2, 4)
        torch.testing.assert_close(answer(module.part(part), adapter.name), answer(alone.part(part)))
    torch.testing.assert_close(answer(module), plain, atol=0, rtol=0)
    assert not torch.allclose(answer(module, "poet"), answer(module, "lawyer"))


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({"use_rslora": True}, ALPHA / RANK**0.5),
        ({"alpha_pattern": {"(q|v|down)_proj": 2}}, 2 / RANK),
        ({"alpha_pattern": {r"model.layers.\d+.*": 3}}, 3 / RANK),
    ],
)
def test_its_strength_is_what_its_config_says(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path, changes: dict[str, Any], scale: float
) -> None:
    folder, whole = tiny
    adapter = save_adapter(tmp_path / "poet", whole, **changes)
    module = load_span(folder, Span(0, 2), torch.float32)
    add_adapters(module, [adapter])
    alone = load_span(merged(folder, adapter, tmp_path / "merged", scale), Span(0, 2), torch.float32)
    torch.testing.assert_close(answer(module, "poet"), answer(alone))


def test_it_works_beside_quantised_weights(tmp_path: Path) -> None:
    whole = save_tiny_model(tmp_path / "model", wide=True)
    adapter = save_adapter(tmp_path / "poet", whole)
    module = load_span(tmp_path / "model", Span(0, 2), torch.float32, quantisation="int8")
    add_adapters(module, [adapter])
    hidden = torch.randn(1, 5, 128, generator=torch.Generator().manual_seed(4))
    alone = load_span(merged(tmp_path / "model", adapter, tmp_path / "merged"), Span(0, 2), torch.float32)
    with torch.inference_mode():
        expected, actual = alone.forward(hidden) - hidden, module.forward(hidden, adapter="poet") - hidden
    assert (actual - expected).norm() / expected.norm() < 0.1


def test_only_the_span_is_kept_in_memory(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, whole = tiny
    adapter = save_adapter(tmp_path / "poet", whole)
    module = load_span(folder, Span(2, 5), torch.float32)
    add_adapters(module, [adapter])
    assert set(module.loaded_adapters["poet"].blocks) == {2, 3, 4}
    assert 0 < module.loaded_adapters["poet"].nbytes < adapter_bytes(adapter) / 2 + 1


def test_an_adapter_that_nobody_loaded_is_refused(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, whole = tiny
    module = load_span(folder, Span(0, 2), torch.float32)
    with pytest.raises(RemoteError, match="no adapter 'poet' here; this server has none"):
        module.forward(HIDDEN, adapter="poet")
    add_adapters(module, [save_adapter(tmp_path / "lawyer", whole)])
    with pytest.raises(RemoteError, match="this server has lawyer") as caught:
        module.forward(HIDDEN, adapter="poet")
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": "IA3"}, "of the kind IA3; only LORA"),
        ({"use_dora": True}, "uses use_dora, which cannot be served"),
        ({"bias": "all"}, "uses bias, which cannot be served"),
        ({"modules_to_save": ["lm_head"]}, "uses modules_to_save"),
    ],
)
def test_what_is_more_than_two_matrices_is_refused(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    folder, whole = tiny
    with pytest.raises(LocalError, match=reason):
        add_adapters(load_span(folder, Span(0, 1), torch.float32), [save_adapter(tmp_path / "odd", whole, **changes)])


def test_an_adapter_for_another_model_or_for_more_than_blocks_is_refused(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    folder, whole = tiny
    module = load_span(folder, Span(0, 1), torch.float32)
    wider = save_tiny_model(tmp_path / "wider", wide=True)
    with pytest.raises(LocalError, match=r"does not fit block 0's .+: it is for another model"):
        add_adapters(module, [save_adapter(tmp_path / "wide", wider)])
    with pytest.raises(LocalError, match="which is no linear layer of a block"):
        add_adapters(module, [save_adapter(tmp_path / "head", whole, (*TARGETS, "lm_head"))])
    renamed = save_adapter(tmp_path / "renamed", whole)
    tensors = load_file(renamed / "adapter_model.safetensors")
    save_file(
        {name.replace("q_proj", "query"): tensor for name, tensor in tensors.items()}, renamed / "adapter_model.safetensors"
    )
    with pytest.raises(LocalError, match=r"changes block 0's self_attn\.query, which this model does not have"):
        add_adapters(module, [renamed])


def test_a_folder_that_is_no_adapter_is_refused(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, whole = tiny
    module = load_span(folder, Span(0, 1), torch.float32)
    with pytest.raises(LocalError, match=r"its adapter_config\.json cannot be read"):
        add_adapters(module, [tmp_path])
    adapter = save_adapter(tmp_path / "poet", whole)
    (adapter / "adapter_model.safetensors").write_bytes(b"garbage")
    with pytest.raises(LocalError, match="cannot be read as safetensors"):
        add_adapters(module, [adapter])
