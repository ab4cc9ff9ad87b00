"""A monitor that has just seen a given swarm."""

from __future__ import annotations

import time

from monitor.crawl import CrawlReport
from monitor.store import store
from swarm.snapshot import Model, Snapshot
from swarm.wire.hints import HintRequest, SpanDocument
from swarm.wire.spans import Span
from tests.swarms import peer_id

SWARM = "main"


def seen(model: Model, ago_s: float = 0.0) -> float:
    """Stores the model as seen so many seconds ago; when that was."""
    at = time.time() - ago_s
    snapshot = Snapshot(SWARM, at, (model,))
    store(CrawlReport(SWARM, at - 0.1, at + 0.1, snapshot, indexed=frozenset({model.prefix})))
    return at


def question(name: str, num_blocks: int = 12, serving: Span | None = None) -> HintRequest:
    current = SpanDocument(start=serving.start, end=serving.end) if serving else None
    return HintRequest(peer=peer_id(name), model="tiny-hf", num_blocks_max=num_blocks, num_blocks=num_blocks, current=current)
