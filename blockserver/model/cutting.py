"""The config of a few layers of a model, and the proof that it builds the same layers as the whole config does.

A config says which layer is of which kind in four ways: lists with an entry for each layer, lists of layer numbers, a count of
first layers, and a period. Each has one rule here, by the attribute's name and for all families. A rule that is missing would
build a layer of the wrong kind without an error, so `require_same_layers` compares.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from blockserver.model.families import Family, family_of
from swarm.errors import LocalError

ENTRIES = ("layer_types", "mlp_layer_types", "no_rope_layers", "layer_rope_theta")
NUMBERS = ("mlp_only_layers", "moe_layers")
COUNTS = ("first_k_dense_replace", "num_dense_layers")
BOUNDS = ("moe_layer_start_index", "moe_layer_end_index")
PERIOD = "decoder_sparse_step"


def base_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The family's model without its head."""
    return cast(type[PreTrainedModel], AutoModel._model_mapping[type(config)])


def causal_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    return cast(type[PreTrainedModel], AutoModelForCausalLM._model_mapping[type(config)])


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    return cast(nn.ModuleList, getattr(model, family_of(model.config.model_type).layers))


def cut_config(config: PreTrainedConfig, start: int, end: int) -> PreTrainedConfig:
    """The same family with layers `start` to `end - 1` only."""
    cut: Any = copy.deepcopy(config)
    _spell_out_period(cut)
    for name in ENTRIES:
        if isinstance(value := getattr(cut, name, None), list) and len(value) == config.num_hidden_layers:
            setattr(cut, name, value[start:end])
    for name in NUMBERS:
        if isinstance(value := getattr(cut, name, None), list):
            setattr(cut, name, [number - start for number in value if start <= number < end])
    for name in COUNTS:
        if isinstance(value := getattr(cut, name, None), int):
            setattr(cut, name, max(0, min(value, end) - start))
    for name in BOUNDS:
        # -1 stands for the last layer; a bound before the cut's first layer would read the same.
        if isinstance(value := getattr(cut, name, None), int) and value >= 0:
            setattr(cut, name, max(0, value - start))
    cut.num_hidden_layers = end - start
    return cast(PreTrainedConfig, cut)


def _spell_out_period(config: Any) -> None:
    """Every n-th layer has experts, counted from the model's first: as a list, it can be cut."""
    period = getattr(config, PERIOD, None)
    if isinstance(period, int) and period > 1:
        dense = {number for number in range(config.num_hidden_layers) if (number + 1) % period}
        config.mlp_only_layers = sorted(dense | set(config.mlp_only_layers or ()))
        setattr(config, PERIOD, 1)


def without_vocabulary(config: PreTrainedConfig) -> PreTrainedConfig:
    """A span has no use for embeddings: one row stands for them, so that no memory goes to a table never read."""
    cut = copy.deepcopy(config)
    cut.vocab_size, cut.pad_token_id = 1, None
    return cut


def outline(config: PreTrainedConfig) -> PreTrainedModel:
    """The model without its head and vocabulary, its tensors with shapes and no contents."""
    with torch.device("meta"):
        return base_class(config)(without_vocabulary(config))


def let_embeddings_in(model: nn.Module, family: Family) -> None:
    """What enters the model as embeddings reaches its first layer (or its norm, where there is none) as it is."""
    if family.entry_norm:
        setattr(model, family.entry_norm, nn.Identity())
    if family.entry_scale:
        setattr(model, family.entry_scale, 1.0)


def require_same_layers(whole: nn.ModuleList, cut: nn.ModuleList, start: int) -> None:
    """LocalError where a layer of the cut model is not built as the one that it stands for."""
    for number, layer in enumerate(cut, start):
        expected, built = dict(_traits(whole[number])), dict(_traits(layer))
        strange = sorted({name for name, _ in expected.items() ^ built.items()})
        if strange:
            raise LocalError(f"block {number} cannot be cut out: alone it would differ in {', '.join(strange[:3])}")


def _traits(layer: nn.Module) -> Iterator[tuple[str, object]]:
    """Kind, shapes and settings of a layer and of all within it, its number aside."""
    for path, module in layer.named_modules():
        yield f"{path or 'the layer'}", type(module)
        for name, value in vars(module).items():
            if isinstance(value, int | float | str | None) and name != "layer_idx":
                yield f"{path}.{name}".lstrip("."), value
    for name, tensor in layer.state_dict().items():
        yield f"{name}'s shape", tensor.shape
