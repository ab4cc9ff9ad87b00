"""A ServerRecord as JSON for the database, and back. JSON knows no infinity: an endless ping is kept as null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span


def record_to_json(record: ServerRecord) -> dict[str, Any]:
    return {
        "state": int(record.state),
        "throughput": record.throughput,
        "span": [record.span.start, record.span.end] if record.span else None,
        "public_name": record.public_name,
        "version": record.version,
        "network_rps": record.network_rps,
        "forward_rps": record.forward_rps,
        "inference_rps": record.inference_rps,
        "adapters": list(record.adapters),
        "torch_dtype": record.torch_dtype,
        "quant_type": record.quant_type,
        "using_relay": record.using_relay,
        "cache_tokens_left": record.cache_tokens_left,
        "next_pings": {peer: None if math.isinf(ping) else ping for peer, ping in record.next_pings.items()},
    }


def record_from_json(stored: Mapping[str, Any]) -> ServerRecord:
    """Reads our own rows only, so that a missing field is our fault and may raise."""
    fields = dict(stored)
    span = fields.pop("span")
    pings = fields.pop("next_pings")
    return ServerRecord(
        state=ServerState(fields.pop("state")),
        span=Span(*span) if span else None,
        adapters=tuple(fields.pop("adapters")),
        next_pings={peer: math.inf if ping is None else ping for peer, ping in pings.items()},
        **fields,
    )
