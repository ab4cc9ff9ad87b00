"""What the operator means to do, as the doctor is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from blockserver.config import check_precision


@dataclass(frozen=True)
class Wishes:
    """Addresses of peers are as they were typed: checking them is the doctor's work."""

    model: str | None
    initial_peers: tuple[str, ...]
    coordinator: str | None
    prefix: str | None
    num_blocks: int | None
    listen: tuple[str, ...]
    announce: tuple[str, ...]
    identity_path: Path | None
    dtype: str
    quant_type: str
    token: str | None = field(repr=False)
    hub: str
    cache_dir: Path
    state_dir: Path
    cache_tokens: int
    port_mapping: bool = False
    relay: bool = True

    def __post_init__(self) -> None:
        check_precision(self.dtype, self.quant_type)
