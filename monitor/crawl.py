"""One pass over a swarm: read the index, read the blocks, visit who says to be online -> a Snapshot, or why there is none.

Knows no DHT and no clock of its own: both are arguments. What could not be read is never reported as empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from swarm.errors import SwarmError
from swarm.snapshot import Dropped, Reading, Snapshot, Visit, assemble, read_servers
from swarm.wire.records import ModelRecord, ServerState
from swarm.wire.spans import Span

VISITS_AT_ONCE = 32
"""Dials in flight. Each may take 5 s: a thousand dead servers are dialled within three minutes, and p2pd is not flooded."""


class Reader(Protocol):
    """A peer of the swarm that can be asked."""

    async def check_alive(self) -> None: ...
    async def bootstrap_states(self) -> dict[str, bool]: ...
    async def read_index(self) -> tuple[dict[str, ModelRecord], list[Dropped], bool]: ...
    async def read_blocks(self, models: Mapping[str, int]) -> dict[str, Reading]: ...
    async def visit(self, peer_id: str, prefix: str, span: Span) -> Visit: ...


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """Either a snapshot or a failure. `indexed` are the models that stood in the index just now. Times in Unix seconds."""

    swarm: str
    started_at: float
    finished_at: float
    snapshot: Snapshot | None = None
    failure: str = ""
    bootstraps: Mapping[str, bool] = field(default_factory=dict)
    keys_unread: int = 0
    indexed: frozenset[str] = frozenset()


async def crawl(swarm: str, reader: Reader, clock: Callable[[], float], known: Mapping[str, ModelRecord]) -> CrawlReport:
    """`known` models are looked for even where the index has lost them."""
    started_at = clock()
    bootstraps: dict[str, bool] = {}
    try:
        await reader.check_alive()
        bootstraps = await reader.bootstrap_states()
        indexed, dropped, index_read = await reader.read_index()
        if not index_read:
            return CrawlReport(
                swarm, started_at, clock(), failure="the index of models could not be read", bootstraps=bootstraps
            )
        models = {**known, **indexed}
        readings = await reader.read_blocks({prefix: record.num_blocks for prefix, record in models.items()})
        at = clock()
        visits = await _visit_all(reader, models, readings, at)
        # A p2pd that died in the meantime makes every visit fail: that says nothing about the servers.
        await reader.check_alive()
    except SwarmError as error:
        return CrawlReport(swarm, started_at, clock(), failure=str(error), bootstraps=bootstraps)
    parts = [
        # One model at a time: a peer may serve two models and hold its blocks of only one.
        assemble(swarm, at, {prefix: record}, readings, visits[prefix])
        for prefix, record in sorted(models.items())
    ]
    snapshot = Snapshot(
        swarm,
        at,
        tuple(chain.from_iterable(part.models for part in parts)),
        (*dropped, *chain.from_iterable(part.dropped for part in parts)),
    )
    unread = sum(len(reading.unread) for reading in readings.values())
    return CrawlReport(swarm, started_at, clock(), snapshot, "", bootstraps, unread, frozenset(indexed))


async def _visit_all(
    reader: Reader, models: Mapping[str, ModelRecord], readings: Mapping[str, Reading], at: float
) -> dict[str, dict[str, Visit]]:
    """By prefix and peer id. Joining and leaving servers are taken at their word: they do not say to answer."""
    gate = asyncio.Semaphore(VISITS_AT_ONCE)

    async def gated(visiting: Awaitable[Visit]) -> Visit:
        async with gate:
            return await visiting

    targets = [
        (prefix, peer_id, span)
        for prefix, record in models.items()
        for peer_id, (announced, span, _) in read_servers(prefix, record.num_blocks, readings[prefix], at)[0].items()
        if announced.state is ServerState.ONLINE
    ]
    answers = await asyncio.gather(*(gated(reader.visit(peer_id, prefix, span)) for prefix, peer_id, span in targets))
    visits: dict[str, dict[str, Visit]] = {prefix: {} for prefix in models}
    for (prefix, peer_id, _), answer in zip(targets, answers, strict=True):
        visits[prefix][peer_id] = answer
    return visits
