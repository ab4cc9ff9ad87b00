"""How one block server is at this moment, as it tells it by rpc_info, metrics, systemd's status line and /readyz: one value,
so that all four say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swarm.wire.spans import Span

STATES = ("starting", "joining", "online", "leaving")


@dataclass(frozen=True, slots=True)
class Condition:
    """`loading` is the share of bytes loaded, None when nothing is being loaded. Rates as in `Throughput`."""

    state: str
    prefix: str
    version: str
    device: str
    dtype: str
    quant_type: str = "none"
    span: Span | None = None
    loading: float | None = None
    throughput: float | None = None
    inference_rps: float | None = None
    forward_rps: float | None = None
    network_rps: float | None = None
    sessions_active: int = 0
    cache_tokens_left: int = 0
    cache_tokens: int = 0
    using_relay: bool | None = None
    public_name: str | None = None
    connected: bool = True
    announcements: int = 0
    announcement_failures: int = 0
    reconnects: int = 0
    moves: int = 0

    def to_info(self) -> dict[str, Any]:
        """The keys of rpc_info beside Petals' own: plain msgpack types, None where not known (docs/protocol.md)."""
        return {
            "state": self.state,
            "start_block": self.span.start if self.span else None,
            "end_block": self.span.end if self.span else None,
            "loading_progress": self.loading,
            "throughput": self.throughput,
            "inference_rps": self.inference_rps,
            "forward_rps": self.forward_rps,
            "network_rps": self.network_rps,
            "sessions_active": self.sessions_active,
            "cache_tokens": self.cache_tokens,
            "device": self.device,
            "torch_dtype": self.dtype,
            "quant_type": self.quant_type,
            "using_relay": self.using_relay,
            "public_name": self.public_name,
        }

    def in_words(self) -> str:
        """The status line: `online: blocks 3–6 of tiny-hf, 2 sessions`."""
        if self.span is None:
            return f"{self.state}: {self.prefix}"
        blocks = f"{self.span.in_words()} of {self.prefix}"
        if self.state == "joining":
            return f"joining: loading {blocks}" + ("" if self.loading is None else f", {100 * self.loading:.0f} %")
        connected = "" if self.connected else ", connection to the swarm lost"
        return f"{self.state}: {blocks}, {self.sessions_active} session{'' if self.sessions_active == 1 else 's'}{connected}"
