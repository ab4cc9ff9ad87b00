"""What this machine can compute on: names and free memory."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import psutil
import torch


@dataclass(frozen=True, slots=True)
class Device:
    """`name` as torch writes it (`cuda:0`), `model` as its maker does."""

    name: str
    model: str
    free_bytes: int

    def __str__(self) -> str:
        return f"{self.name} ({self.model}, {self.free_bytes / 1e9:.1f} GB free)"


def find_devices() -> tuple[Device, ...]:
    """The fastest kind first; the CPU always comes last."""
    found = [Device(f"cuda:{index}", torch.cuda.get_device_name(index), torch.cuda.mem_get_info(index)[0]) for index in _cuda()]
    free = psutil.virtual_memory().available
    if torch.backends.mps.is_available():
        found.append(Device("mps", "Apple GPU", free))
    return (*found, Device("cpu", f"{_cpu_model()}, {torch.get_num_threads()} threads", free))


def device_model(name: str) -> str:
    """The maker's name of the device that torch calls so; the same text at each start."""
    if name.startswith("cuda"):
        return str(torch.cuda.get_device_name(torch.device(name)))
    return _cpu_model() if name == "cpu" else name


def _cuda() -> range:
    return range(torch.cuda.device_count() if torch.cuda.is_available() else 0)


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()
