"""Where a server stands at this moment, and how that is told: in its record, by rpc_info, metrics and systemd's line, in the
ready file. `life` alone changes it; whoever tells it only reads, from any thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from blockserver.config import ServeConfig
from blockserver.ready import write_ready_file
from blockserver.serving import loading
from blockserver.serving.advice import Decision
from blockserver.serving.condition import Condition
from blockserver.serving.neighbours import Ways
from blockserver.serving.presence import Presence
from blockserver.serving.served_model import ServedModel
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

_STATES = {ServerState.JOINING: "joining", ServerState.ONLINE: "online", ServerState.OFFLINE: "leaving"}


@dataclass
class Standing:
    """`model` is the one served now, or to be served first. `loaded` counts bytes, done and in all, while blocks load."""

    model: ServedModel
    span: Span | None = None
    loaded: tuple[int, int] | None = None
    using_relay: bool | None = None
    moves: int = 0

    @property
    def throughput(self) -> float | None:
        span = self.span  # read once: another thread may be asking while the model changes
        return self.model.rates.announced(len(span), bool(self.using_relay)) if span else None


def condition_of(now: Standing, config: ServeConfig, presence: Presence, version: str) -> Condition:
    announcer, handler = presence.announcer, presence.handler
    said, measured, loaded = announcer.said, now.model.rates.measured, now.loaded
    return Condition(
        state=_STATES[said[0]] if said else "starting",
        prefix=now.model.prefix,
        version=version,
        device=str(loading.device_of(config)),
        dtype=now.model.offer.dtype_name,
        quant_type=config.quant_type,
        span=now.span,
        loading=loaded[0] / loaded[1] if loaded and loaded[1] else None,
        throughput=now.throughput,
        inference_rps=measured.inference_rps if measured else None,
        forward_rps=measured.forward_rps if measured else None,
        network_rps=measured.network_rps if measured else None,
        sessions_active=handler.sessions_active,
        cache_tokens_left=handler.cache_tokens_left,
        cache_tokens=config.cache_tokens,
        using_relay=now.using_relay,
        public_name=config.public_name,
        connected=not presence.down,
        announcements=announcer.rounds,
        announcement_failures=announcer.failures,
        reconnects=presence.reconnects,
        moves=now.moves,
    )


def record_of(now: Condition, standing: Standing, ways: Ways) -> ServerRecord:
    """State and span are the announcer's."""
    return ServerRecord(
        state=ServerState.JOINING,
        throughput=now.throughput,
        public_name=now.public_name,
        version=now.version,
        network_rps=now.network_rps,
        forward_rps=now.forward_rps,
        inference_rps=now.inference_rps,
        torch_dtype=now.dtype,
        quant_type=now.quant_type,
        adapters=tuple(folder.name for folder in standing.model.offer.config.adapters),
        using_relay=bool(now.using_relay),
        cache_tokens_left=now.cache_tokens_left,
        next_pings=ways.measured,
    )


def tell_ready(config: ServeConfig, peer_id: str, decision: Decision) -> None:
    span = decision.placement.span
    facts = {
        "peer_id": peer_id,
        "pid": os.getpid(),
        "model": decision.prefix,
        "span": [span.start, span.end],
        "reason": str(decision),
    }
    write_ready_file(config.ready_file, facts)
