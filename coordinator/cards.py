"""Graphics cards that people have, by memory: for those who know their card and not its gigabytes. Pure."""

from __future__ import annotations

CARDS = {
    "rtx-3060": ("NVIDIA RTX 3060", 12),
    "rtx-3080": ("NVIDIA RTX 3080", 10),
    "rtx-3090": ("NVIDIA RTX 3090", 24),
    "rtx-4060-ti-16": ("NVIDIA RTX 4060 Ti, 16 GB", 16),
    "rtx-4070": ("NVIDIA RTX 4070", 12),
    "rtx-4080": ("NVIDIA RTX 4080", 16),
    "rtx-4090": ("NVIDIA RTX 4090", 24),
    "rtx-5080": ("NVIDIA RTX 5080", 16),
    "rtx-5090": ("NVIDIA RTX 5090", 32),
    "a4000": ("NVIDIA RTX A4000", 16),
    "a5000": ("NVIDIA RTX A5000", 24),
    "a6000": ("NVIDIA RTX A6000", 48),
    "t4": ("NVIDIA T4", 16),
    "v100": ("NVIDIA V100, 32 GB", 32),
    "l4": ("NVIDIA L4", 24),
    "a10": ("NVIDIA A10", 24),
    "l40s": ("NVIDIA L40S", 48),
    "a100-40": ("NVIDIA A100, 40 GB", 40),
    "a100-80": ("NVIDIA A100, 80 GB", 80),
    "h100": ("NVIDIA H100, 80 GB", 80),
    "h200": ("NVIDIA H200", 141),
    "cpu-16": ("no card: 16 GB of main memory", 16),
    "cpu-64": ("no card: 64 GB of main memory", 64),
}
"""Key: (what people call it, gigabytes as printed on the box)."""


def memory_of(card: str | None) -> float | None:
    return float(CARDS[card][1]) if card in CARDS else None
