"""A monitor that has just seen a given swarm."""

from __future__ import annotations

import time
from collections.abc import Mapping

from monitor.crawl import CrawlReport
from monitor.store import store
from swarm.snapshot import Model, Snapshot
from swarm.wire.hints import HintRequest, OtherModel, SpanDocument
from swarm.wire.spans import Span
from tests.swarms import peer_id

SWARM = "main"


def seen(*models: Model, ago_s: float = 0.0) -> float:
    """Stores the models as seen so many seconds ago; when that was."""
    at = time.time() - ago_s
    snapshot = Snapshot(SWARM, at, models)
    store(CrawlReport(SWARM, at - 0.1, at + 0.1, snapshot, indexed=frozenset(model.prefix for model in models)))
    return at


def question(
    name: str,
    num_blocks: int = 12,
    serving: Span | None = None,
    prefix: str = "tiny-hf",
    also: Mapping[str, int] | None = None,
    sessions: int = 0,
) -> HintRequest:
    """`also` are blocks that fit, by model."""
    return HintRequest(
        peer=peer_id(name),
        model=prefix,
        num_blocks_max=num_blocks,
        num_blocks=num_blocks,
        current=SpanDocument(start=serving.start, end=serving.end) if serving else None,
        sessions_active=sessions,
        also=tuple(OtherModel(model=other, num_blocks_max=blocks) for other, blocks in (also or {}).items()),
    )
