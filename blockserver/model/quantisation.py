"""Weights in 8 or 4 bits: which device can, and turning a loaded block into its quantised form.

bitsandbytes does the arithmetic and is optional; where it is missing, or the device cannot, `check_precision` says so before
anything is loaded. Norms, routers and biases stay as they are: they are small, and what they lose weighs most.
"""

from __future__ import annotations

import importlib.util
import logging
from types import ModuleType
from typing import Any, cast

import torch
from torch import nn

from swarm.errors import LocalError

NONE, INT8, NF4 = "none", "int8", "nf4"
QUANTISATIONS = (NONE, INT8, NF4)

BITS = {INT8: 8.0 + 0.1, NF4: 4.0 + 0.13}
"""Bits of one weight, scales included: one of 32 bits for each row of int8 (rows of 320 and more), and one of 8 bits for each
64 weights of nf4 with one of 32 bits for each 256 of these. Measured by a test."""

RUNS: dict[tuple[str, str], str | None] = {
    (INT8, "cuda"): None,
    (NF4, "cuda"): None,
    (INT8, "cpu"): None,
    (NF4, "cpu"): None,
    (INT8, "mps"): "bitsandbytes has no int8 kernels for Apple GPUs",
    (NF4, "mps"): "bitsandbytes has no nf4 kernels for Apple GPUs",
}
"""What runs where: None, or why not."""


READ_WHOLE = frozenset({"kv_b_proj"})
"""Matrices that latent attention folds into others instead of multiplying by them: they stay as they are."""

ROWS_AT_ONCE, COLUMNS_AT_ONCE = 32, 64
"""The library's kernels take a matrix in tiles of this size; one that is no whole number of them stays as it is."""


def check_precision(quantisation: str, device: torch.device) -> LocalError | None:
    """The reason why blocks cannot be quantised so on this device, or None where they can."""
    if quantisation not in QUANTISATIONS:
        return LocalError(f"quantisation {quantisation!r} is not known; choose one of {', '.join(QUANTISATIONS)}")
    if quantisation == NONE:
        return None
    why_not = RUNS.get((quantisation, device.type), f"devices of the kind {device.type!r} are not supported")
    if why_not:
        return LocalError(f"{quantisation} cannot run on {device.type}: {why_not}")
    if importlib.util.find_spec("bitsandbytes") is None:
        return LocalError(f"{quantisation} needs the package bitsandbytes: pip install 'sepal[quantisation]'")
    return None


def stored_bits(quantisation: str, dtype: torch.dtype) -> float:
    """Bits of one weight of a matrix."""
    return BITS.get(quantisation, dtype.itemsize * 8.0)


def count_quantisable(layer: nn.Module) -> int:
    """How many of the block's weights `quantise_block` would turn; the others keep their dtype."""
    return sum(
        cast(torch.Tensor, module.weight).numel()
        if _in_tiles(path, module)
        else sum(getattr(module, name).numel() for name in _packed(module))
        for path, module in layer.named_modules()
    )


def quantise_block(layer: nn.Module, quantisation: str, device: torch.device) -> None:
    """Replaces the block's matrices by quantised ones on `device`, one at a time, and moves the rest there.

    LocalError where the block holds experts that cannot be told apart.
    """
    if quantisation != NONE:
        if (error := check_precision(quantisation, device)) is not None:
            raise error
        for path, module in list(layer.named_modules()):
            if _in_tiles(path, module):
                owner, _, name = path.rpartition(".")
                setattr(layer.get_submodule(owner), name, _linear(cast(nn.Linear, module), quantisation, device))
            elif packed := _packed(module):
                _pack(module, path, packed, quantisation, device)
    layer.to(device)


def ready_for_gradients(block: nn.Module) -> None:
    """On some CPUs a first pass without gradients repacks nf4 matrices, and gradients then vanish in them without an error."""
    for module in block.modules():
        if getattr(getattr(getattr(module, "weight", None), "quant_state", None), "packing_format_for_cpu", False):
            module.state_dict()  # which is written in the portable form, and so brings it back


def _in_tiles(path: str, module: nn.Module) -> bool:
    if not isinstance(module, nn.Linear) or path.rpartition(".")[2] in READ_WHOLE:
        return False
    return module.out_features % ROWS_AT_ONCE == 0 and module.in_features % COLUMNS_AT_ONCE == 0


def _linear(module: nn.Linear, quantisation: str, device: torch.device) -> nn.Module:
    bnb, bias, weight = _bitsandbytes(), module.bias, module.weight.detach()
    sizes = (module.in_features, module.out_features, bias is not None)
    if quantisation == INT8:
        made = bnb.nn.Linear8bitLt(*sizes, has_fp16_weights=False, threshold=6.0, device="meta")
        made.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    else:
        made = bnb.nn.Linear4bit(*sizes, compute_dtype=weight.dtype, quant_type=NF4, device="meta")
        made.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type=NF4)
    made.bias = bias
    return made.to(device).eval().requires_grad_(False)


def _packed(module: nn.Module) -> list[str]:
    """Names of the parameters that hold the matrices of all experts, `[experts, rows, columns]`."""
    return [name for name, value in module.named_parameters(recurse=False) if value.ndim == 3]


def _pack(module: nn.Module, path: str, names: list[str], quantisation: str, device: torch.device) -> None:
    if not hasattr(module, "_is_expert_parallel"):
        raise LocalError(f"{quantisation} cannot be used for this family: the experts of {path} work as one matrix")
    for name in names:
        weights = getattr(module, name).detach()
        delattr(module, name)
        module.add_module(name, _Experts(weights, quantisation, device))


class _Experts(nn.Module):
    """Quantised matrices of experts. `experts[i]` is the matrix of one, in the dtype of computation."""

    def __init__(self, weights: torch.Tensor, quantisation: str, device: torch.device) -> None:
        super().__init__()
        self._bnb, self._dtype = _bitsandbytes().functional, weights.dtype
        quantise = self._int8 if quantisation == INT8 else self._nf4
        self._each = [quantise(weight.to(device)) for weight in weights]

    def __getitem__(self, index: Any) -> torch.Tensor:
        stored, scales = self._each[int(index)]
        if isinstance(scales, torch.Tensor):
            return cast(torch.Tensor, self._bnb.int8_vectorwise_dequant(stored, scales).to(self._dtype))
        return cast(torch.Tensor, self._bnb.dequantize_4bit(stored, scales))

    def stored_bytes(self) -> int:
        return sum(stored.nbytes + _scale_bytes(scales) for stored, scales in self._each)

    def _int8(self, weight: torch.Tensor) -> tuple[torch.Tensor, Any]:
        # Rows are scaled in float16, as the library's own layers do.
        stored, scales, _ = self._bnb.int8_vectorwise_quant(weight.to(torch.float16))
        return stored, scales[:, None] if scales.ndim == 1 else scales

    def _nf4(self, weight: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return cast(
            tuple[torch.Tensor, Any],
            self._bnb.quantize_4bit(weight.contiguous(), quant_type=NF4, compress_statistics=True),
        )


def _scale_bytes(scales: Any) -> int:
    if isinstance(scales, torch.Tensor):
        return scales.nbytes
    nested = scales.state2.absmax.nbytes if scales.nested else 0
    return int(scales.absmax.nbytes + nested)


def _bitsandbytes() -> ModuleType:
    import bitsandbytes

    # It repeats at every step that inputs are cast, and looks for kernels on the model hub, which is nobody's business here.
    for name in ("bitsandbytes.autograd._functions", "bitsandbytes.backends.cpu.ops"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return bitsandbytes
