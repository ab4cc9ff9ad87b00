"""What this machine was measured at, kept in a file with its age: a restart need not measure again.

A figure counts only for the same model, precision, device and software, and only for a week: drivers, cooling and the
neighbours on the machine change. An unreadable file is no figure; a folder that cannot be written is told once.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

FILE_NAME = "throughput.json"
MAX_AGE_S = 7 * 86_400.0
NETWORK_MAX_AGE_S = 86_400.0
"""A line's rate changes with the hour and the place."""
MAX_ENTRIES = 64
"""Models and precisions that one machine tries out."""


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a figure depends on."""

    model: str
    dtype: str
    quant_type: str
    device: str
    threads: int
    software: str

    @property
    def key(self) -> str:
        return " | ".join((self.model, self.dtype, self.quant_type, self.device, f"{self.threads} threads", self.software))


class MeasuredRates:
    """`folder` None keeps nothing. Times in Unix seconds."""

    def __init__(self, folder: Path | None) -> None:
        self._file = folder / FILE_NAME if folder else None

    def compute(self, setup: Setup, now: float) -> tuple[float, float] | None:
        """Blocks per second token by token and in parallel, where they were measured lately."""
        entry = self._fresh(setup.key, now, MAX_AGE_S)
        rates = [_rate(entry, name) for name in ("inference_rps", "forward_rps")]
        return (rates[0], rates[1]) if rates[0] and rates[1] else None

    def load_s_per_block(self, setup: Setup, now: float) -> float | None:
        return _rate(self._fresh(_loading(setup), now, MAX_AGE_S), "s_per_block")

    def network(self, bytes_per_token: int, now: float) -> float | None:
        """Tokens per second."""
        rate = _rate(self._fresh("network", now, NETWORK_MAX_AGE_S), "bytes_per_s")
        return rate / bytes_per_token if rate else None

    def keep_compute(self, setup: Setup, inference_rps: float, forward_rps: float, now: float) -> None:
        self._keep(setup.key, {"inference_rps": inference_rps, "forward_rps": forward_rps, "measured_at": now})

    def keep_load(self, setup: Setup, s_per_block: float, now: float) -> None:
        self._keep(_loading(setup), {"s_per_block": s_per_block, "measured_at": now})

    def keep_network(self, tokens_per_s: float, bytes_per_token: int, now: float) -> None:
        self._keep("network", {"bytes_per_s": tokens_per_s * bytes_per_token, "measured_at": now})

    def _fresh(self, key: str, now: float, max_age_s: float) -> dict[str, Any]:
        entry = self._read().get(key)
        if not isinstance(entry, dict):
            return {}
        measured_at = entry.get("measured_at")
        return entry if isinstance(measured_at, (int, float)) and 0 <= now - measured_at < max_age_s else {}

    def _read(self) -> dict[str, Any]:
        if self._file is None:
            return {}
        try:
            entries = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _keep(self, key: str, entry: dict[str, float]) -> None:
        if self._file is None:
            return
        entries = {name: kept for name, kept in self._read().items() if name != key and isinstance(kept, dict)}
        newest = sorted(entries, key=lambda name: -(_rate(entries[name], "measured_at") or 0.0))[: MAX_ENTRIES - 1]
        partial = self._file.with_name(self._file.name + ".partial")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({key: entry, **{name: entries[name] for name in newest}}, indent=1))
            partial.replace(self._file)
        except OSError as error:
            log.warning("measured rates cannot be kept in %s (%s); the next start measures again", self._file, error.strerror)


def _loading(setup: Setup) -> str:
    return f"loading | {setup.key}"


def _rate(entry: dict[str, Any], name: str) -> float | None:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return None
    return float(value)
