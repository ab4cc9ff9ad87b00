"""What an operator may set for `sepal serve`. Frozen; checked when it is made, with an error that says what to do."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from swarm.errors import BadRecord, LocalError
from swarm.wire.hints import MOST_ALSO
from swarm.wire.keys import MAX_BLOCKS, parse_prefix
from swarm.wire.spans import Span
from swarm.wire.text import clean_text

DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANT_TYPES = ("none", "int8", "nf4")
DEFAULT_UPDATE_PERIOD_S = 120.0
"""Petals' default: a record is renewed every two minutes and lives for four."""


@dataclass(frozen=True)
class LoadConfig:
    """How blocks come into memory. `serve` and `bench` have the same flags for it."""

    model: Path
    """Folder of the model, with config.json and safetensors shards; or `owner/name` on a hub."""

    dtype: str = "auto"
    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`, `mps`; by default the fastest that is there."""

    quant_type: str = "none"
    adapters: tuple[Path, ...] = ()
    """Folders of LoRA adapters (peft)."""

    revision: str | None = None
    token: str | None = field(default=None, repr=False)
    """For a hub that asks for one. Never logged."""

    cache_dir: Path | None = None
    max_disk_space: int | None = None
    """Bytes that downloaded models may take in the cache folder."""

    @property
    def in_folder(self) -> bool:
        """Whether the model lies in a folder here, or is to be fetched."""
        return len(self.model.parts) != 2 or self.model.is_absolute() or str(self.model).startswith(".") or self.model.exists()

    def __post_init__(self) -> None:
        check_precision(self.dtype, self.quant_type)


@dataclass(frozen=True, slots=True)
class AlsoModel:
    """A further model that the server may serve in the place of the first. `prefix`: where it has another name in the DHT."""

    model: Path
    prefix: str | None = None

    def __str__(self) -> str:
        return str(self.model) if self.prefix is None else f"{self.model}={self.prefix}"


@dataclass(frozen=True, kw_only=True)
class ServeConfig(LoadConfig):
    initial_peers: tuple[str, ...]
    """Where to enter the swarm: multiaddresses that end in /p2p/PEER_ID."""

    coordinator: str | None = None
    """Address of the site whose hints to follow; without it the server always decides by itself."""

    prefix: str | None = None
    """Name of the model in the DHT; by default the one that Petals would use for the folder's name."""

    also: tuple[AlsoModel, ...] = ()
    """Models that the server may change to, where they lack a server more than the first. It serves one at a time."""

    num_blocks: int | None = None
    """How many blocks to serve, of whichever model; by default as many as fit in memory."""

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

    cache_tokens: int = 4096
    """Attention cache: tokens of all sessions together, in each block."""

    update_period_s: float = DEFAULT_UPDATE_PERIOD_S
    hint_interval_s: float = 30.0
    """How often to ask the coordinator, give or take a fifth."""

    fallback_after_s: float = 180.0
    """With the coordinator silent for this long, the server decides by itself."""

    confirm_s: float = 60.0
    """A hole that this server finds by itself must still be there after this long before it moves."""

    min_dwell_s: float = 600.0
    """A lease that fills no hole is declined until the present blocks were served so long: a move costs minutes of loading."""

    drain_s: float = 16.0
    """On SIGTERM: how long sessions may take to end. With the announcement and p2pd's end this stays below 30 s."""

    throughput: str | float = "auto"
    """`auto` takes a figure kept from an earlier start, `eval` measures anew, a number of tokens per second is announced."""

    check_reachability: bool = True
    """Whether to go ONLINE only after other peers and the coordinator's site could dial this server."""

    reachable_within_s: float = 120.0
    """How long to try before the server gives up: relays and port mappings take their time."""

    alive_interval_s: float = 10.0
    """How often to see whether p2pd still works and the bootstrap peers are connected."""

    state_dir: Path | None = None
    """Where measured throughput is kept between starts; None keeps nothing."""

    metrics_port: int | None = None
    """Prometheus metrics and /readyz on this port of 127.0.0.1; 0 takes a free one, None serves none."""

    ready_file: Path | None = None
    """Written as JSON whenever the server is ONLINE with a new span."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(
            bool(self.initial_peers), "--initial-peers: at least one address is needed (first peer of a swarm: sepal bootstrap)"
        )
        if self.num_blocks is not None:
            _check(1 <= self.num_blocks <= MAX_BLOCKS, f"--num-blocks {self.num_blocks}: a number from 1 to {MAX_BLOCKS}")
        _check(self.cache_tokens >= 1, f"--cache-tokens {self.cache_tokens}: at least 1")
        for name in ("update_period_s", "hint_interval_s", "fallback_after_s", "confirm_s", "alive_interval_s"):
            value = getattr(self, name)
            flag = "--" + name.removesuffix("_s").replace("_", "-")
            _check(math.isfinite(value) and value > 0, f"{flag} {value}: a number of seconds above 0")
        _check(self.min_dwell_s >= 0, f"--min-dwell {self.min_dwell_s}: a number of seconds, or 0")
        _check_throughput(self.throughput)
        if self.metrics_port is not None:
            _check(0 <= self.metrics_port < 65_536, f"--metrics-port {self.metrics_port}: a port number, or 0 for any")
        if self.coordinator is not None:
            url = urlsplit(self.coordinator)
            _check(
                url.scheme in ("http", "https") and bool(url.netloc),
                f"--coordinator {self.coordinator}: an address such as https://swarm.example is expected",
            )
        _check_prefix("--prefix", self.prefix)
        _check_also(self.also, self.block_indices)
        if self.public_name is not None:
            _check(clean_text(self.public_name) == self.public_name, "--public-name: at most 64 visible characters")


def parse_block_indices(text: str) -> Span:
    """`0:18` as in Petals: from block 0 up to, not including, block 18."""
    match = re.fullmatch(r"(\d{1,6}):(\d{1,6})", text.strip())
    if not match or int(match[1]) >= int(match[2]):
        raise LocalError(f"--block-indices {text}: two numbers such as 0:18, the first below the second")
    return Span(int(match[1]), int(match[2]))


def parse_throughput(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def check_precision(dtype: str, quant_type: str) -> None:
    """LocalError for a word that is none of those that there are."""
    _check(dtype in DTYPES, f"--dtype {dtype}: choose one of {', '.join(DTYPES)}")
    _check(quant_type in QUANT_TYPES, f"--quant-type {quant_type}: choose one of {', '.join(QUANT_TYPES)}")


def parse_bytes(text: str, flag: str = "--max-disk-space") -> int:
    """`300GB`, `1.5 TiB`, or a plain number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise LocalError(f"{flag} {text}: a size such as 300GB or 1.5TiB")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def parse_also(text: str) -> AlsoModel:
    """A folder or `owner/name`, as the first model is given; `=PREFIX` may follow."""
    model, equals, prefix = text.strip().rpartition("=")
    if not equals:
        model, prefix = prefix, ""
    if not model or (equals and not prefix):
        raise LocalError(f"--also {text}: a model's folder or owner/name, with =PREFIX behind it where it needs another name")
    return AlsoModel(Path(model), prefix or None)


def _check_also(also: tuple[AlsoModel, ...], block_indices: Span | None) -> None:
    _check(
        not also or block_indices is None,
        "--block-indices and --also contradict each other: a server of fixed blocks never moves. Give one of them",
    )
    _check(len(also) <= MOST_ALSO, f"--also: {len(also)} models are more than the {MOST_ALSO} that a server may offer besides")
    for other in also:
        _check_prefix(f"--also {other}", other.prefix)


def _check_prefix(flag: str, prefix: str | None) -> None:
    if prefix is not None:
        try:
            parse_prefix(prefix)
        except BadRecord as error:
            raise LocalError(f"{flag}: {error.detail}") from error


def _check_throughput(value: str | float) -> None:
    if isinstance(value, str):
        _check(value in ("auto", "eval"), f"--throughput {value}: auto, eval, or a number of tokens per second")
    else:
        _check(math.isfinite(value) and value > 0, f"--throughput {value:g}: a number above 0")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LocalError(otherwise)
