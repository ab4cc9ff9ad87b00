"""One pass over a swarm: read the index, read the blocks, visit the servers -> a Snapshot, or why there is none.

Knows no DHT and no clock of its own: both are arguments. What could not be read is never reported as empty. What was seen
before is an argument too: models that the index lost are still looked for, servers that were there are still visited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from monitor.ahead import Ahead
from monitor.probe import Ask, Known, Target, targets, visit_all
from monitor.progress import Stage, Tell, untold
from monitor.sizes import EVERYBODY, Size, Stood, Witnesses, evidence, settled, stood
from monitor.wanted import Wanted, beyond, wanted
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
)
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span

INDEX_UNREAD = Dropped(
    MODELS_KEY,
    "all entries",
    "index-unread",
    "peers of the swarm answered, but none of them for the index of models: it may be too large to be sent. Models that stood "
    "before were read as ever; new ones are not shown",
)


class Reader(Protocol):
    """A peer of the swarm that can be asked."""

    async def check_alive(self) -> None: ...
    async def rejoin(self) -> None: ...
    async def bootstrap_states(self) -> Entrances: ...
    async def canary(self) -> bool: ...
    async def read_index(self) -> Reading: ...
    async def read_blocks(self, models: Mapping[str, int], heard: Callable[[int], None] = ...) -> dict[str, Reading]: ...
    async def visit(self, peer_id: str, prefix: str, span: Span) -> Visit: ...
    async def visit_afresh(self, failed: Visit, prefix: str, span: Span) -> Visit: ...
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
    """Either a snapshot or a failure. Times in Unix seconds. `indexed` are the models that stood in the index just now; those
    that stood before where it could not be read.

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
    witnesses: Witnesses = EVERYBODY,
) -> CrawlReport:
    """`known` models are looked for even where the index has lost them, and `look_for` prefixes even where it never had them;
    `previous` is what was last seen, those that have left since included; `tell` is told how far it has come; `witnesses` says
    whose answers prove how many blocks a model has.

    An index that cannot be read hides new models only, as long as anybody answers for a key of those that stood before."""
    servers, at = _by_peer(previous), clock()
    async with Ahead(_dialling(reader, servers, at)) as ahead:
        ahead.begin(targets(_records_of(previous), {}, servers, at))
        return await _crawl(swarm, reader, clock, known, previous, look_for, tell, witnesses, ahead)


async def _crawl(
    swarm: str,
    reader: Reader,
    clock: Callable[[], float],
    known: Mapping[str, ModelRecord],
    previous: Snapshot | None,
    look_for: Collection[str],
    tell: Tell,
    witnesses: Witnesses,
    ahead: Ahead,
) -> CrawlReport:
    report = CrawlReport(swarm, clock(), 0.0)
    try:
        await reader.check_alive()
        entrances = await reader.bootstrap_states()
        report = replace(report, bootstraps=entrances.peers, addresses=entrances.addresses, split=entrances.split)
        tell(Stage.ENTRANCES, report.bootstraps_up, len(report.bootstraps))
        report = replace(report, canary=await _canary(reader))
        found = await _index(reader)
        if found.unread:
            # What was not read is not lost.
            known = {**_records_of(previous), **known}
        servers = _by_peer(previous)
        before = _stood(known, previous)
        index = read_index(found, {p: r for p, r in known.items() if _serves(servers, p) and not before[p].at_least})
        chosen = wanted(index, before, look_for, _served(previous, servers), previous)
        keys, readings = await _read(reader, chosen, tell)
        if found.unread and not any(len(reading.unread) < keys[prefix] for prefix, reading in readings.items()):
            return replace(report, finished_at=clock(), failure="the index of models could not be read")
        at = clock()
        visits = await _visits(reader, ahead, targets(_as_models(keys), readings, servers, at), tell)
        routes = await reader.routes()
        # A p2pd that died in the meantime makes every visit fail: that says nothing about the servers.
        await reader.check_alive()
    except SwarmError as error:
        return replace(report, finished_at=clock(), failure=str(error))
    found_in = _Findings(at, keys, readings, _by_route(visits, routes), servers, index, witnesses)
    snapshot = _snapshot(swarm, found_in, before, known)
    # The first one that waits is whose turn it is next: it must not drown in what else was left out.
    dropped = (*chosen.waiting[:1], *index.dropped, *chosen.too_many, *snapshot.dropped, *chosen.waiting[1:])
    snapshot = with_skew(replace(snapshot, dropped=(INDEX_UNREAD, *dropped) if found.unread else dropped), previous)
    unread = sum(len(model.unread_blocks) for model in snapshot.models)
    indexed = frozenset(known) if found.unread else frozenset(index.models) | index.unsized
    return replace(report, finished_at=clock(), snapshot=snapshot, keys_unread=unread, indexed=indexed)


@dataclass(frozen=True, slots=True)
class _Findings:
    """What one crawl brought: `keys` holds by prefix how many block keys were read, `servers` those seen before."""

    at: float
    keys: Mapping[str, int]
    readings: Mapping[str, Reading]
    visits: Mapping[str, Mapping[str, Visit]]
    servers: Known
    index: Index
    witnesses: Witnesses

    def size(self, prefix: str, before: Stood | None) -> Size | None:
        claims = frozenset(self.index.claims.get(prefix, ()))
        reading, answers = self.readings.get(prefix, Reading({})), self.visits.get(prefix, {})
        known = self.servers.get(prefix, {})
        seen = evidence(prefix, claims, reading, self.keys[prefix], answers, known, self.at, self.witnesses)
        return settled(before, seen)


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


async def _blocks(reader: Reader, sizes: Mapping[str, int], tell: Tell) -> dict[str, Reading]:
    keys = sum(sizes.values())
    tell(Stage.MODELS, len(sizes), len(sizes))
    tell(Stage.BLOCKS, 0, keys)
    return await reader.read_blocks(sizes, lambda done: tell(Stage.BLOCKS, done, keys))


async def _read(reader: Reader, chosen: Wanted, tell: Tell) -> tuple[dict[str, int], dict[str, Reading]]:
    """How many block keys were read of each model, and what stands there: one more than was wanted, and all that there could
    be where somebody stands under that."""
    keys = {prefix: count + 1 for prefix, count in chosen.keys.items()}
    readings = await _blocks(reader, keys, tell)
    more = beyond(chosen, readings)
    if more:
        readings = {**readings, **await reader.read_blocks(more)}
    return {**keys, **more}, readings


def _dialling(reader: Reader, servers: Known, at: float) -> Ask:
    """For servers seen before, of which it is not known yet whether they still stand in the DHT: a record that has not run out
    is as good."""

    async def visit(peer_id: str, prefix: str, span: Span) -> Visit:
        found = await reader.visit(peer_id, prefix, span)
        if found.backed_off and servers[prefix][peer_id].expires_at > at:
            return replace(await reader.visit_afresh(found, prefix, span), backed_off=False)
        return found

    return visit


async def _visits(reader: Reader, ahead: Ahead, chosen: list[Target], tell: Tell) -> dict[str, dict[str, Visit]]:
    asked: set[tuple[str, str]] = set()
    announced = {(target.prefix, target.peer_id) for target in chosen if target.claim is not None}

    async def visit(peer_id: str, prefix: str, span: Span) -> Visit:
        found = await (ahead.begun(peer_id, prefix, span) or reader.visit(peer_id, prefix, span))
        # Who says that it is there is dialled now, whatever was tried before; who is only remembered can wait for its turn.
        if found.backed_off and (prefix, peer_id) in announced:
            found = await reader.visit_afresh(found, prefix, span)
        asked.add((prefix, peer_id))
        tell(Stage.SERVERS, len(asked), len(chosen))
        return found

    ahead.no_more()
    tell(Stage.SERVERS, 0, len(chosen))
    return await visit_all(visit, chosen)


def _records(sizes: Mapping[str, Size], index: Index, known: Mapping[str, ModelRecord]) -> dict[str, ModelRecord]:
    """With the repository of whoever named the size that stands."""
    believed = {**known, **index.models}
    found: dict[str, ModelRecord] = {}
    for prefix, size in sizes.items():
        record = believed.get(prefix)
        if record is None or record.num_blocks != size.num_blocks:
            record = index.claims.get(prefix, {}).get(size.num_blocks, record)
        found[prefix] = ModelRecord(size.num_blocks, record.repository if record is not None else None)
    return found


def _as_models(keys: Mapping[str, int]) -> dict[str, ModelRecord]:
    """Whoever stands under a key that was read is visited, however large the model is."""
    return {prefix: ModelRecord(count, None) for prefix, count in keys.items()}


def _stood(known: Mapping[str, ModelRecord], previous: Snapshot | None) -> dict[str, Stood]:
    return {
        prefix: stood(previous.model(prefix), record.num_blocks) if previous is not None else Stood(record.num_blocks)
        for prefix, record in known.items()
    }


def _snapshot(swarm: str, found: _Findings, before: Mapping[str, Stood], known: Mapping[str, ModelRecord]) -> Snapshot:
    sizes = {prefix: size for prefix in found.keys if (size := found.size(prefix, before.get(prefix))) is not None}
    models = _records(sizes, found.index, known)
    conflicts = _conflicts(found.index, sizes)
    parts = [
        # One model at a time: a peer may serve two models and hold its blocks of only one.
        assemble(swarm, found.at, {p: record}, found.readings, found.visits.get(p, {}), (), found.servers, conflicts)
        for p, record in sorted(models.items())
    ]
    return Snapshot(
        swarm,
        found.at,
        tuple(replace(model, at_least=sizes[model.prefix].at_least) for part in parts for model in part.models),
        tuple(chain.from_iterable(part.dropped for part in parts)),
    )


def _conflicts(index: Index, sizes: Mapping[str, Size]) -> dict[str, str]:
    conflicts = dict(index.conflicts)
    for prefix in index.unsized & sizes.keys():
        basis = "its size is what its block keys show" if sizes[prefix].at_least else "its size is what stood before"
        conflicts[prefix] = f"its entry in the index of models cannot be used; {basis}"
    return {**conflicts, **{prefix: size.conflict for prefix, size in sizes.items() if size.conflict}}


def _by_peer(previous: Snapshot | None) -> Known:
    models = previous.models if previous is not None else ()
    return {model.prefix: {server.peer_id: server for server in model.servers} for model in models if model.servers}


def _records_of(previous: Snapshot | None) -> dict[str, ModelRecord]:
    models = previous.models if previous is not None else ()
    return {model.prefix: ModelRecord(model.num_blocks, model.repository) for model in models}


def _served(previous: Snapshot | None, servers: Known) -> tuple[str, ...]:
    remembered = previous.served if previous is not None else ()
    return (*remembered, *sorted(p for p in servers.keys() - set(remembered) if _serves(servers, p)))


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
