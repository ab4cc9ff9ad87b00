"""Which device computes: the operator's, or the fastest that this machine has."""

from __future__ import annotations

import torch

from swarm.errors import LocalError

KINDS = ("cuda", "mps", "cpu")
"""The fastest first."""


def choose_device(wanted: str | None = None) -> torch.device:
    """`wanted` as torch writes it (`cuda:1`), or None for the best. LocalError where it is not there."""
    if wanted is None:
        return torch.device(next(kind for kind in KINDS if _count(kind)))
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise LocalError(
            f"--device {wanted}: choose one of {', '.join(KINDS)}, or a GPU by its number, such as cuda:1"
        ) from error
    if device.type not in KINDS:
        raise LocalError(f"--device {wanted}: devices of the kind {device.type} are not supported, only {', '.join(KINDS)}")
    count = _count(device.type)
    if not count:
        raise LocalError(f"--device {wanted}: this machine has none that torch {torch.__version__} can use")
    if (device.index or 0) >= count:
        raise LocalError(f"--device {wanted}: this machine has {count} of that kind, counted from 0")
    return device


def _count(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return 1
