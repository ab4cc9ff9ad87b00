"""A snapshot as a document that stays the same for ever: who served what at one moment. Pure.

Names that people chose are left out: whoever takes his name back must not find it in an old snapshot.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from monitor.privacy import without_addresses
from monitor.published import rfc3339
from monitor.serving import cache_left_of, shown_state, version_of
from swarm.coverage import coverage
from swarm.snapshot import Model, Server, Snapshot

LEVEL = 3
"""Of zlib: 500 servers on 10 models, 106 kB, become 21 kB; the highest level saves a tenth and takes three times as long."""


def archived(snapshot: Snapshot, snapshot_id: int) -> bytes:
    """JSON (`monitor.api.crawls.SnapshotDocument`), compressed."""
    return zlib.compress(json.dumps(document(snapshot, snapshot_id), separators=(",", ":"), allow_nan=False).encode(), LEVEL)


def document(snapshot: Snapshot, snapshot_id: int) -> dict[str, Any]:
    return {
        "snapshot_id": snapshot_id,
        "swarm": snapshot.swarm,
        "observed_at": rfc3339(snapshot.at),
        "models": [_model(model) for model in snapshot.models],
    }


def _model(model: Model) -> dict[str, Any]:
    covered = coverage(model)
    return {
        "prefix": model.prefix,
        "repository": without_addresses(model.repository) if model.repository else None,
        "num_blocks": model.num_blocks,
        "size_known": not model.at_least,
        "verdict": covered.verdict.value,
        "holes": [[span.start, span.end] for span in covered.holes],
        "thin": [[span.start, span.end] for span in covered.thin],
        "unread": [[span.start, span.end] for span in covered.unread],
        "blocks": [block.redundancy for block in covered.blocks],
        "servers": [_server(server) for server in model.servers],
    }


def _server(server: Server) -> dict[str, Any]:
    return {
        "peer_id": server.peer_id,
        "state": shown_state(server),
        "start": server.span.start,
        "end": server.span.end,
        "throughput_tokens_per_second": server.record.throughput,
        "cache_tokens_left": cache_left_of(server),
        "version": without_addresses(version_of(server) or "") or None,
        "using_relay": server.record.using_relay,
    }
