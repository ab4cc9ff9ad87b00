"""What servers and models announce in the DHT, as Petals writes it (docs/protocol.md, "DHT records").

A record is parsed alone: a bad one is a BadRecord with a reason to count, and costs only itself. Rates that are not above
zero are unknown, never 0: Petals' client divides by them.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import BadRecord
from swarm.wire.codec import as_float, as_map
from swarm.wire.keys import MAX_BLOCKS, parse_peer_id
from swarm.wire.spans import Span
from swarm.wire.text import clean_text

MAX_PINGS = 32
"""A Petals server measures at most ten neighbours."""
MAX_ADAPTERS = 64
"""Each adapter takes GPU memory beside the blocks; nobody has been seen with more than a handful."""
MAX_RATE = 1e9
"""Tokens per second that no machine reaches: more is a lie or a mistake, and would swamp every sum."""
MIN_RATE = 1e-3
"""A token in a quarter of an hour: less is unknown. A database that keeps four bytes of a float refuses the smallest ones."""
MAX_PING_S = 3_600.0
"""Nobody waits that long for an answer; infinity means that there was none."""
MAX_CACHE_TOKENS = 2**53
"""Beyond this JSON readers lose digits."""
MAX_REPOSITORY_LENGTH = 256
OURS = "sepal-"
"""With this the version of our servers begins, before its number."""


class ServerState(enum.IntEnum):
    """As the server itself announces it."""

    OFFLINE = 0
    JOINING = 1
    ONLINE = 2


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """One server's announcement under one block key.

    `throughput` and the three `*_rps` are tokens per second; `cache_tokens_left` counts keys and values of all blocks of the
    span; `next_pings` maps peer ids to round trips in seconds. None means: not said.
    """

    state: ServerState
    throughput: float | None
    span: Span | None = None
    public_name: str | None = None
    version: str | None = None
    network_rps: float | None = None
    forward_rps: float | None = None
    inference_rps: float | None = None
    adapters: tuple[str, ...] = ()
    torch_dtype: str | None = None
    quant_type: str | None = None
    using_relay: bool | None = None
    cache_tokens_left: int | None = None
    next_pings: dict[str, float] = field(default_factory=dict, hash=False)

    @property
    def is_ours(self) -> bool:
        """Whether the server says that it is one of ours, so that it looks for holes by itself. Petals' servers do not."""
        return self.version is not None and self.version.startswith(OURS)

    def to_wire(self) -> tuple[int, float, dict[str, Any]]:
        """The tuple that Petals' strict reader accepts; floats stay floats. What is unknown is left out."""
        details: dict[str, Any] = {
            "start_block": self.span.start if self.span else None,
            "end_block": self.span.end if self.span else None,
            "public_name": self.public_name,
            "version": self.version,
            "network_rps": self.network_rps,
            "forward_rps": self.forward_rps,
            "inference_rps": self.inference_rps,
            "adapters": self.adapters,
            "torch_dtype": self.torch_dtype,
            "quant_type": self.quant_type,
            "using_relay": self.using_relay,
            "cache_tokens_left": self.cache_tokens_left,
            "next_pings": self.next_pings or None,
        }
        said = {name: value for name, value in details.items() if value is not None}
        return (int(self.state), float(self.throughput or 0.0), said)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model's entry in the index of models. `repository` is an URL, or None for a model from a folder."""

    num_blocks: int
    repository: str | None

    def to_wire(self) -> dict[str, Any]:
        return {"num_blocks": self.num_blocks, "repository": self.repository}


def parse_server_record(value: object) -> ServerRecord:
    if not isinstance(value, (tuple, list)) or len(value) < 2:
        raise BadRecord("shape", "a server record is a tuple of state, throughput and a map")
    details = as_map(value[2]) if len(value) > 2 else {}
    return ServerRecord(
        state=_state(value[0]),
        throughput=_throughput(value[1]),
        span=_span(details.get("start_block"), details.get("end_block")),
        public_name=None if details.get("show_public_name") is False else clean_text(details.get("public_name")),
        version=clean_text(details.get("version")),
        network_rps=_rate(details.get("network_rps")),
        forward_rps=_rate(details.get("forward_rps")),
        inference_rps=_rate(details.get("inference_rps")),
        adapters=_adapters(details.get("adapters")),
        torch_dtype=clean_text(details.get("torch_dtype")),
        quant_type=clean_text(details.get("quant_type")),
        using_relay=_flag(details.get("using_relay")),
        cache_tokens_left=as_cache_tokens(details.get("cache_tokens_left")),
        next_pings=_pings(details.get("next_pings")),
    )


def parse_model_record(value: object) -> ModelRecord:
    details = as_map(value)
    num_blocks, repository = details.get("num_blocks"), details.get("repository")
    if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or not 1 <= num_blocks <= MAX_BLOCKS:
        raise BadRecord("model-size", f"num_blocks is {_quoted(num_blocks)}, not a number from 1 to {MAX_BLOCKS}")
    if repository is not None and not isinstance(repository, str):
        raise BadRecord("shape", "a model's repository is text or nothing")
    return ModelRecord(num_blocks, clean_text(repository, MAX_REPOSITORY_LENGTH))


def _quoted(value: object) -> str:
    """What a stranger wrote, short, and with nothing in it that hides or that a database does not take."""
    return repr(value)[:40]


def _state(value: object) -> ServerState:
    if isinstance(value, bool) or not isinstance(value, int) or value not in tuple(ServerState):
        raise BadRecord("state", f"state is {_quoted(value)}, not 0, 1 or 2")
    return ServerState(value)


def _throughput(value: object) -> float | None:
    number = as_float(value)
    if number is None or not 0 <= number <= MAX_RATE:
        raise BadRecord("throughput", f"throughput is {_quoted(value)}, not a float from 0 to {MAX_RATE:g}")
    return number if number >= MIN_RATE else None


def _span(start: object, end: object) -> Span | None:
    if start is None and end is None:
        return None
    for bound in (start, end):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise BadRecord("span", f"a span's bounds are integers, not {_quoted(start)}:{_quoted(end)}")
    assert isinstance(start, int) and isinstance(end, int)
    if not 0 <= start < end <= MAX_BLOCKS:
        raise BadRecord("span", f"{_quoted(start)}:{_quoted(end)} is no span of blocks")
    return Span(start, end)


def _rate(value: object) -> float | None:
    number = as_float(value)
    return number if number is not None and MIN_RATE <= number <= MAX_RATE else None


def _adapters(value: object) -> tuple[str, ...]:
    if not isinstance(value, (tuple, list)):
        return ()
    cleaned = (clean_text(name, MAX_REPOSITORY_LENGTH) for name in value[:MAX_ADAPTERS])
    return tuple(name for name in cleaned if name)


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def as_cache_tokens(value: object) -> int | None:
    """The value where it can be a number of tokens, else None."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CACHE_TOKENS:
        return None
    return value


def _pings(value: object) -> dict[str, float]:
    """Round trips to peers; Petals writes infinity for a peer that did not answer, which is kept."""
    if not isinstance(value, dict):
        return {}
    pings: dict[str, float] = {}
    for peer, seconds in list(value.items())[:MAX_PINGS]:
        if not isinstance(seconds, float) or not (0 <= seconds <= MAX_PING_S or seconds == math.inf):
            continue
        try:
            pings[parse_peer_id(peer)] = seconds
        except BadRecord:
            continue
    return pings
