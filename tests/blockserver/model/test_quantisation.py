"""Quantised blocks answer nearly as the plain ones do, take the memory that is counted for them, and are refused elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from blockserver.compute.cache import SessionCache
from blockserver.model import quantisation
from blockserver.model.blocks import SpanModule, load_span
from blockserver.model.quantisation import INT8, NF4, NONE, QUANTISATIONS, RUNS, check_precision, stored_bits
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.tiny_models import save_tiny_model

SPAN = Span(1, 4)
HIDDEN = torch.randn(2, 9, 128, generator=torch.Generator().manual_seed(2))
MAY_DIFFER = {INT8: 0.1, NF4: 0.5}
"""Relative error of what three random blocks add to their input."""

KINDS = ["bloom", "deepseek_v3", "falcon", "gemma2", "gpt_neox", "gpt_oss", "llama", "mixtral", "phi3", "qwen3_moe"]
CPU = torch.device("cpu")


@torch.inference_mode()
def added(module: SpanModule) -> torch.Tensor:
    """What the blocks add to their input, prefilled and then continued."""
    cache = SessionCache(len(SPAN), HIDDEN.shape[1])
    first = module.forward(HIDDEN[:, :5], cache)
    cache.advance(5)
    return torch.cat([first, module.forward(HIDDEN[:, 5:], cache)], dim=1) - HIDDEN


@pytest.fixture(scope="module", params=KINDS)
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide") / "model"
    save_tiny_model(folder, request.param, wide=True)
    return folder


def test_quantised_blocks_answer_nearly_as_the_plain_ones(wide: Path) -> None:
    plain = added(load_span(wide, SPAN, torch.float32))
    for kind, most in MAY_DIFFER.items():
        module = load_span(wide, SPAN, torch.float32, quantisation=kind)
        error = (added(module) - plain).norm() / plain.norm()
        assert 0 < error < most, kind
        assert module.quantisation == kind


@pytest.mark.parametrize("family", ["llama4_text", "jetmoe"])
def test_experts_that_work_as_one_matrix_are_refused(family: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model", family, wide=True)
    with pytest.raises(LocalError, match=r"int8 cannot be used for this family: the experts of .+ work as one matrix"):
        load_span(tmp_path / "model", Span(0, 3), torch.float32, quantisation=INT8)


def test_gradients_pass_through_quantised_blocks(tmp_path: Path) -> None:
    """For clients that train prompts; also after passes without gradients, and those still answer afterwards."""
    save_tiny_model(tmp_path / "model", "mixtral", wide=True)
    weights = torch.randn(HIDDEN.shape, generator=torch.Generator().manual_seed(5))

    def gradient(module: SpanModule) -> torch.Tensor:
        hidden = HIDDEN.clone().requires_grad_()
        # Less the part that passes by the blocks, which would be right by itself.
        return torch.autograd.grad((module.forward(hidden) * weights).sum(), hidden)[0] - weights

    expected = gradient(load_span(tmp_path / "model", SPAN, torch.float32))
    for kind, most in MAY_DIFFER.items():
        module = load_span(tmp_path / "model", SPAN, torch.float32, quantisation=kind)
        before = added(module)
        assert (gradient(module) - expected).norm() / expected.norm() < most
        # Not to the bit: repacking rounds the scales once more.
        assert (added(module) - before).norm() / before.norm() < 0.01


@pytest.mark.parametrize("kind", [INT8, NF4])
def test_a_weight_takes_the_bits_that_are_counted(kind: str) -> None:
    """`capacity` counts with them: too few would run out of memory, many too many would serve too few blocks."""
    linear = torch.nn.Linear(4096, 1024, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    block = torch.nn.ModuleDict({"matrix": linear})
    quantisation.quantise_block(block, kind, CPU)
    weight = block["matrix"].weight
    if kind == INT8:
        taken = weight.nbytes + weight.SCB.nbytes
    else:
        state = weight.quant_state
        taken = weight.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes
    bits = 8 * taken / (4096 * 1024)
    assert bits <= stored_bits(kind, torch.bfloat16) <= bits * 1.05


def test_plain_weights_take_what_their_dtype_says() -> None:
    assert stored_bits(NONE, torch.bfloat16) == 16


@pytest.mark.parametrize(
    ("kind", "device", "reason"),
    [
        ("int8", "mps", "int8 cannot run on mps: bitsandbytes has no"),
        ("nf4", "mps", "nf4 cannot run on mps: bitsandbytes has no"),
        ("nf4", "xpu", "devices of the kind 'xpu' are not supported"),
        ("int3", "cpu", "choose one of none, int8, nf4"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(kind: str, device: str, reason: str) -> None:
    error = check_precision(kind, torch.device(device))
    assert error is not None and reason in str(error)


def test_what_can_run_is_not_refused() -> None:
    assert all(check_precision(NONE, torch.device(device)) is None for device in ("cpu", "mps", "cuda"))
    for (kind, device), why_not in RUNS.items():
        assert (check_precision(kind, torch.device(device)) is None) == (why_not is None)
    assert {kind for kind, _ in RUNS} == set(QUANTISATIONS) - {NONE}


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(LocalError, match=r"pip install 'sepal\[quantisation\]'"):
        load_span(tmp_path, SPAN, torch.float32, quantisation=NF4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("kind", QUANTISATIONS)
def test_on_a_gpu_blocks_answer_as_on_the_cpu(kind: str, wide: Path) -> None:
    plain = added(load_span(wide, SPAN, torch.float32))
    module = load_span(wide, SPAN, torch.float16, device=torch.device("cuda"), quantisation=kind)
    cache = SessionCache(len(SPAN), HIDDEN.shape[1])
    with torch.inference_mode():
        answer = module.forward(HIDDEN.to("cuda", torch.float16), cache).float().cpu() - HIDDEN
    assert (answer - plain).norm() / plain.norm() < MAY_DIFFER.get(kind, 0.02)
