"""What an operator may set for `sepal serve`. Frozen; checked when it is made, with an error that says what to do."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swarm.errors import BadRecord, LocalError
from swarm.wire.keys import MAX_BLOCKS, parse_prefix
from swarm.wire.spans import Span
from swarm.wire.text import clean_text

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEFAULT_UPDATE_PERIOD_S = 120.0
"""Petals' default: a record is renewed every two minutes and lives for four."""


@dataclass(frozen=True)
class ServeConfig:
    model: Path
    """Folder of the model: config.json and safetensors shards."""

    initial_peers: tuple[str, ...]
    """Where to enter the swarm: multiaddresses that end in /p2p/PEER_ID."""

    coordinator: str | None = None
    """Address of the site whose hints to follow; without it the server always decides by itself."""

    prefix: str | None = None
    """Name of the model in the DHT; by default the one that Petals would use for the folder's name."""

    num_blocks: int | None = None
    """How many blocks to serve; by default as many as fit in memory."""

    block_indices: Span | None = None
    """Serve just these blocks and never move."""

    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/0",)
    announce: tuple[str, ...] = ()
    identity_path: Path | None = None
    """File of the private key, so that the peer id stays the same over restarts; made where it is missing."""

    port_mapping: bool = True
    relay: bool = True
    public_name: str | None = None
    """Shown on the status page."""

    dtype: str = "auto"
    cache_tokens: int = 4096
    """Attention cache: tokens of all sessions together, in each block."""

    update_period_s: float = DEFAULT_UPDATE_PERIOD_S
    hint_interval_s: float = 30.0
    """How often to ask the coordinator, give or take a fifth."""

    fallback_after_s: float = 180.0
    """With the coordinator silent for this long, the server decides by itself."""

    confirm_s: float = 60.0
    """A hole that this server finds by itself must still be there after this long before it moves."""

    drain_s: float = 20.0
    """On SIGTERM: how long sessions may take to end."""

    ready_file: Path | None = None
    """Written as JSON whenever the server is ONLINE with a new span."""

    def __post_init__(self) -> None:
        _check(
            bool(self.initial_peers), "--initial-peers: at least one address is needed (first peer of a swarm: sepal bootstrap)"
        )
        _check(self.dtype in DTYPES, f"--dtype {self.dtype}: choose one of {', '.join(DTYPES)}")
        if self.num_blocks is not None:
            _check(1 <= self.num_blocks <= MAX_BLOCKS, f"--num-blocks {self.num_blocks}: a number from 1 to {MAX_BLOCKS}")
        _check(self.cache_tokens >= 1, f"--cache-tokens {self.cache_tokens}: at least 1")
        for name in ("update_period_s", "hint_interval_s", "fallback_after_s", "confirm_s"):
            value = getattr(self, name)
            flag = "--" + name.removesuffix("_s").replace("_", "-")
            _check(math.isfinite(value) and value > 0, f"{flag} {value}: a number of seconds above 0")
        if self.coordinator is not None:
            url = urlsplit(self.coordinator)
            _check(
                url.scheme in ("http", "https") and bool(url.netloc),
                f"--coordinator {self.coordinator}: an address such as https://swarm.example is expected",
            )
        if self.prefix is not None:
            try:
                parse_prefix(self.prefix)
            except BadRecord as error:
                raise LocalError(f"--prefix: {error.detail}") from error
        if self.public_name is not None:
            _check(clean_text(self.public_name) == self.public_name, "--public-name: at most 64 visible characters")


def parse_block_indices(text: str) -> Span:
    """`0:18` as in Petals: from block 0 up to, not including, block 18."""
    match = re.fullmatch(r"(\d{1,6}):(\d{1,6})", text.strip())
    if not match or int(match[1]) >= int(match[2]):
        raise LocalError(f"--block-indices {text}: two numbers such as 0:18, the first below the second")
    return Span(int(match[1]), int(match[2]))


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LocalError(otherwise)
