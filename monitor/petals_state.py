"""`/api/v1/state` as health.petals.dev writes it, for scripts and nodes that read that: names, types, nulls, lower-case words.

Two things differ on purpose: there is no address and no place of anybody in it, and what is not known says `unknown`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from monitor.published import Standing, Watch, standings, timely
from monitor.serving import cache_left_of, version_of
from swarm.coverage import Verdict
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerState

CREDITED_BLOCKS = 10
"""From so many online blocks on, health.petals.dev shows a server's public name."""
CREDITED_AT_MOST = 5

_MODEL_STATES = {Verdict.COMPLETE: "healthy", Verdict.THIN: "healthy", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown"}
_SERVER_STATES = {
    PeerState.ONLINE: "online",
    PeerState.JOINING: "joining",
    PeerState.LEAVING: "offline",
    PeerState.UNREACHABLE: "unreachable",
}


def state_document(seen: Watch) -> dict[str, Any]:
    published, crawl = seen.published, seen.last_crawl
    bootstraps = sorted(crawl.bootstraps.items()) if crawl else []
    lately = crawl is not None and timely(crawl.finished_at, seen.read_at, seen.interval_s)
    issues = [{"peer_id": peer_id, "err": "no answer to a DHT ping"} for peer_id, up in bootstraps if not up and lately]
    # While nobody sees the swarm, nobody is known to be online or lost.
    models = published.snapshot.models if published and seen.sees else ()
    return {
        "bootstrap_states": [("online" if up else "unreachable") if lately else "unknown" for _, up in bootstraps],
        "top_contributors": _contributors(models),
        "model_reports": [_model_report(item) for item in standings(published)] if published else [],
        "reachability_issues": issues + _unreachable(models),
        "last_updated": published.snapshot.at if published else None,
        "update_period": seen.interval_s,
        "update_duration": published.crawl.duration_s if published else None,
    }


def _model_report(item: Standing) -> dict[str, Any]:
    model = item.model
    name = (model.repository or model.prefix).removeprefix("https://huggingface.co/")
    return {
        "name": name,
        "short_name": name.rstrip("/").rsplit("/", 1)[-1],
        "state": _MODEL_STATES[item.verdict],
        "server_rows": [_server_row(model, server, item.stale) for server in sorted(model.servers, key=lambda s: s.peer_id)],
        "num_blocks": model.num_blocks,
        "repository": model.repository,
        "dht_prefix": model.prefix,
        "official": False,
        "limited": False,
    }


def _server_row(model: Model, server: Server, stale: bool) -> dict[str, Any]:
    cache = cache_left_of(server)
    row = {
        "short_peer_id": "..." + server.peer_id[-6:],
        "peer_id": server.peer_id,
        "peer_ip_info": "unknown",
        "show_public_name": _credited(server),
        "state": "unknown" if stale else _SERVER_STATES.get(server.state, "unknown"),
        "span": {
            "peer_id": server.peer_id,
            "start": server.span.start,
            "end": server.span.end,
            "server_info": _server_info(server),
        },
        "adapters": [{"name": name, "short_name": name.rsplit("/", 1)[-1]} for name in server.record.adapters],
        "pings_to_me": {
            other.peer_id: _finite(other.record.next_pings[server.peer_id])
            for other in model.servers
            if server.peer_id in other.record.next_pings
        },
    }
    return row if cache is None else {**row, "cache_tokens_left_per_block": cache // (2 * len(server.span))}


def _server_info(server: Server) -> dict[str, Any]:
    record = server.record
    return {
        "state": ServerState(record.state).name.lower(),
        "throughput": record.throughput or 0.0,
        "start_block": record.span.start if record.span else None,
        "end_block": record.span.end if record.span else None,
        "public_name": record.public_name,
        "version": version_of(server),
        "network_rps": record.network_rps,
        "forward_rps": record.forward_rps,
        "inference_rps": record.inference_rps,
        "adapters": list(record.adapters),
        "torch_dtype": record.torch_dtype,
        "quant_type": record.quant_type,
        "using_relay": record.using_relay,
        "cache_tokens_left": cache_left_of(server),
        "next_pings": {peer: _finite(ping) for peer, ping in record.next_pings.items()},
    }


def _contributors(models: tuple[Model, ...]) -> dict[str, int]:
    blocks: Counter[str] = Counter()
    for model in models:
        for server in model.servers:
            if server.record.public_name and _credited(server):
                blocks[server.record.public_name] += len(server.span)
    return dict(blocks.most_common(CREDITED_AT_MOST))


def _unreachable(models: tuple[Model, ...]) -> list[dict[str, str]]:
    return [
        {"peer_id": server.peer_id, "err": server.visit.detail or server.visit.outcome.value}
        for model in models
        for server in model.servers
        if server.state is PeerState.UNREACHABLE and server.visit
    ]


def _credited(server: Server) -> bool:
    return server.state is PeerState.ONLINE and len(server.span) >= CREDITED_BLOCKS


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
