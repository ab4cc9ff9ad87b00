"""What was trained, as one small safetensors file: the parameters that take gradients, and nothing of the model itself."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from swarm.errors import LocalError


def save_trained(model: nn.Module, file: Path | str) -> None:
    """LocalError where nothing is trainable."""
    trained = {name: weight.detach().contiguous() for name, weight in _trainable(model).items()}
    if not trained:
        raise LocalError("the model has nothing that is trained: add learned prompts, a LoRA or a trainable head first")
    save_file(trained, str(file))


def load_trained(model: nn.Module, file: Path | str) -> None:
    """Into a model to which the same was added (`tuning_mode`, `add_lora`, `train_head`). LocalError where it was not."""
    try:
        saved = load_file(str(file))
    except (SafetensorError, OSError) as error:
        raise LocalError(f"{file} cannot be read as safetensors: {error}") from error
    own = _trainable(model)
    if {name: weight.shape for name, weight in saved.items()} != {name: weight.shape for name, weight in own.items()}:
        theirs, ours = (", ".join(sorted(names)) or "nothing" for names in (saved, own))
        raise LocalError(f"{file} holds {theirs}; what this model trains is {ours}")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(saved[name])


def _trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
