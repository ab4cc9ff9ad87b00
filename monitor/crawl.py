"""One pass over a swarm: read the index, read the blocks, visit the servers -> a Snapshot, or why there is none.

Knows no DHT and no clock of its own: both are arguments. What could not be read is never reported as empty. What was seen
before is an argument too: models that the index lost are still looked for, servers that were there are still visited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import Protocol

from monitor.probe import Known, Target, targets, visit_all
from monitor.progress import Stage, Tell, untold
from swarm.errors import SwarmError
from swarm.skew import with_skew
from swarm.snapshot import (
    AddressState,
    Dropped,
    Index,
    PeerState,
    Reading,
    Snapshot,
    Visit,
    assemble,
    read_index,
    size_from_keys,
)
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span

MAX_KEYS = 60_000
"""Block keys read in one crawl: ten times the largest public swarm. The index is open to anyone, and each entry costs its
blocks; models that have servers come first."""
SIZED_AT_ONCE = 8
"""Prefixes whose size is looked for in one crawl."""
SIZED_UP_TO = 256
"""Blocks that such a prefix is looked for under: twice the largest open model."""


class Reader(Protocol):
    """A peer of the swarm that can be asked."""

    async def check_alive(self) -> None: ...
    async def rejoin(self) -> None: ...
    async def bootstrap_states(self) -> Entrances: ...
    async def canary(self) -> bool: ...
    async def read_index(self) -> Reading: ...
    async def read_blocks(self, models: Mapping[str, int], heard: Callable[[int], None] = ...) -> dict[str, Reading]: ...
    async def visit(self, peer_id: str, prefix: str, span: Span) -> Visit: ...
    async def routes(self) -> Mapping[str, Route]: ...


class Route(Protocol):
    """How a peer is connected: direct or relay, and a text that stands for its network, or none."""

    @property
    def via(self) -> str: ...
    @property
    def network(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Entrances:
    """The bootstrap peers: which answer, over which address, and whether they know the same swarm."""

    peers: Mapping[str, bool] = field(default_factory=dict)
    addresses: tuple[AddressState, ...] = ()
    split: str = ""


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """Either a snapshot or a failure. `indexed` are the models that stood in the index just now. Times in Unix seconds.

    `held`, `suspicion`, `lost` and `confirmed` are the gate's word on the snapshot (`monitor.gate`).
    """

    swarm: str
    started_at: float
    finished_at: float
    snapshot: Snapshot | None = None
    failure: str = ""
    bootstraps: Mapping[str, bool] = field(default_factory=dict)
    keys_unread: int = 0
    indexed: frozenset[str] = frozenset()
    addresses: tuple[AddressState, ...] = ()
    split: str = ""
    canary: bool | None = None
    held: str = ""
    suspicion: str = ""
    lost: frozenset[tuple[str, str]] = frozenset()
    confirmed: str = ""

    @property
    def bootstraps_up(self) -> int:
        return sum(self.bootstraps.values())


async def crawl(
    swarm: str,
    reader: Reader,
    clock: Callable[[], float],
    known: Mapping[str, ModelRecord],
    previous: Snapshot | None = None,
    look_for: Collection[str] = (),
    tell: Tell = untold,
) -> CrawlReport:
    """`known` models are looked for even where the index has lost them, and `look_for` prefixes even where it never had them;
    `previous` is what was last seen, those that have left since included; `tell` is told how far it has come."""
    report = CrawlReport(swarm, clock(), 0.0)
    try:
        await reader.check_alive()
        entrances = await reader.bootstrap_states()
        report = replace(report, bootstraps=entrances.peers, addresses=entrances.addresses, split=entrances.split)
        tell(Stage.ENTRANCES, report.bootstraps_up, len(report.bootstraps))
        report = replace(report, canary=await _canary(reader))
        found = await _index(reader)
        if found.unread:
            return replace(report, finished_at=clock(), failure="the index of models could not be read")
        servers = _by_peer(previous)
        index = read_index(found, {prefix: record for prefix, record in known.items() if _serves(servers, prefix)})
        wanted = {**known, **index.models}
        wanted.update(await _sized(reader, look_for, index.unsized, wanted.keys(), clock))
        models, too_many = _affordable(wanted, servers)
        readings = await _blocks(reader, models, tell)
        at = clock()
        visits = await _visits(reader, targets(models, readings, servers, at), tell)
        routes = await reader.routes()
        # A p2pd that died in the meantime makes every visit fail: that says nothing about the servers.
        await reader.check_alive()
    except SwarmError as error:
        return replace(report, finished_at=clock(), failure=str(error))
    snapshot = _snapshot(swarm, at, models, readings, _by_route(visits, routes), servers, index)
    snapshot = replace(snapshot, dropped=(*index.dropped, *too_many, *snapshot.dropped))
    snapshot = with_skew(snapshot, previous)
    unread = sum(len(reading.unread) for reading in readings.values())
    indexed = frozenset(index.models) | index.unsized
    return replace(report, finished_at=clock(), snapshot=snapshot, keys_unread=unread, indexed=indexed)


async def _canary(reader: Reader) -> bool:
    """A neighbour that takes a few seconds once is forgotten at once, by hivemind and by ourselves: with the last of them the
    whole swarm is. So before it is said that nobody hears us, the entrances are called again."""
    if await reader.canary():
        return True
    await reader.rejoin()
    return await reader.canary()


async def _index(reader: Reader) -> Reading:
    """All else hangs on this one key: likewise."""
    found = await reader.read_index()
    if not found.unread:
        return found
    await reader.rejoin()
    return await reader.read_index()


async def _blocks(reader: Reader, models: Mapping[str, ModelRecord], tell: Tell) -> dict[str, Reading]:
    sizes = {prefix: record.num_blocks for prefix, record in models.items()}
    keys = sum(sizes.values())
    tell(Stage.MODELS, len(models), len(models))
    tell(Stage.BLOCKS, 0, keys)
    return await reader.read_blocks(sizes, lambda done: tell(Stage.BLOCKS, done, keys))


async def _visits(reader: Reader, chosen: list[Target], tell: Tell) -> dict[str, dict[str, Visit]]:
    asked: set[tuple[str, str]] = set()

    async def visit(peer_id: str, prefix: str, span: Span) -> Visit:
        found = await reader.visit(peer_id, prefix, span)
        asked.add((prefix, peer_id))
        tell(Stage.SERVERS, len(asked), len(chosen))
        return found

    tell(Stage.SERVERS, 0, len(chosen))
    return await visit_all(visit, chosen)


def _snapshot(
    swarm: str,
    at: float,
    models: Mapping[str, ModelRecord],
    readings: Mapping[str, Reading],
    visits: Mapping[str, Mapping[str, Visit]],
    known: Known,
    index: Index,
) -> Snapshot:
    conflicts = dict(index.conflicts)
    for prefix in sorted(index.unsized & models.keys()):
        conflicts[prefix] = "its entry in the index of models cannot be used; its size is what its block keys show"
    parts = [
        # One model at a time: a peer may serve two models and hold its blocks of only one.
        assemble(swarm, at, {prefix: record}, readings, visits.get(prefix, {}), (), known, conflicts)
        for prefix, record in sorted(models.items())
    ]
    return Snapshot(
        swarm,
        at,
        tuple(chain.from_iterable(part.models for part in parts)),
        tuple(chain.from_iterable(part.dropped for part in parts)),
    )


async def _sized(
    reader: Reader, look_for: Collection[str], unsized: Collection[str], known: Collection[str], clock: Callable[[], float]
) -> dict[str, ModelRecord]:
    """Models without a known size, as far as their block keys show it: those that the operator looks for, then those that the
    index names. Of these as many as there is room for, drawn anew each time: anyone may name eight that come first."""
    drawn = sorted(unsized, key=lambda prefix: blake2b(f"{clock()} {prefix}".encode()).digest())
    chosen = [prefix for prefix in dict.fromkeys((*look_for, *drawn)) if prefix not in known]
    chosen = chosen[: max(SIZED_AT_ONCE, len(look_for))]
    if not chosen:
        return {}
    readings = await reader.read_blocks(dict.fromkeys(chosen, SIZED_UP_TO))
    sizes = {prefix: size_from_keys(prefix, readings[prefix], clock()) for prefix in chosen}
    return {prefix: ModelRecord(size, None) for prefix, size in sizes.items() if size is not None}


def _affordable(wanted: Mapping[str, ModelRecord], servers: Known) -> tuple[dict[str, ModelRecord], list[Dropped]]:
    """As many models as one crawl can read, those with servers first, then the smaller ones."""
    models: dict[str, ModelRecord] = {}
    dropped: list[Dropped] = []
    left = MAX_KEYS
    for prefix in sorted(wanted, key=lambda prefix: (prefix not in servers, wanted[prefix].num_blocks, prefix)):
        if wanted[prefix].num_blocks > left:
            detail = f"{wanted[prefix].num_blocks} blocks are more than are left of the {MAX_KEYS:,} that one crawl reads"
            dropped.append(Dropped(MODELS_KEY, repr(prefix), "too-many-models", detail))
            continue
        models[prefix] = wanted[prefix]
        left -= wanted[prefix].num_blocks
    return models, dropped


def _by_peer(previous: Snapshot | None) -> Known:
    models = previous.models if previous is not None else ()
    return {model.prefix: {server.peer_id: server for server in model.servers} for model in models if model.servers}


def _serves(servers: Known, prefix: str) -> bool:
    return any(server.state is PeerState.ONLINE for server in servers.get(prefix, {}).values())


def _by_route(visits: Mapping[str, Mapping[str, Visit]], routes: Mapping[str, Route]) -> dict[str, dict[str, Visit]]:
    return {
        prefix: {
            peer_id: replace(visit, via=visit.via or found.via, network=found.network)
            if visit.answered and (found := routes.get(peer_id)) is not None
            else visit
            for peer_id, visit in answers.items()
        }
        for prefix, answers in visits.items()
    }
