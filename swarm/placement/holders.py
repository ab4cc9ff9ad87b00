"""Who will hold what once every promise is kept: the plan that all rules judge. Knows states, promises and spans, no policy."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from swarm.placement.decisions import Promise
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import Span, runs


class Holder(NamedTuple):
    """`throughput` in tokens per second, None where not known. A tuple, since plans make thousands of them."""

    peer_id: str
    span: Span
    online: bool
    throughput: float | None


def planned(model: Model, promises: Iterable[Promise], rates: Mapping[str, float] | None = None) -> list[Holder]:
    """A promised server is gone from where it is now, and not yet online; a slow one is nowhere. `rates` take the place of what
    records say."""
    moving = {promise.peer_id: promise for promise in promises}
    believed = rates or {}
    said = {server.peer_id: believed.get(server.peer_id, server.record.throughput) for server in model.servers}
    holders = [
        Holder(server.peer_id, span, server.state is PeerState.ONLINE, said[server.peer_id])
        for server in _counted(model, moving)
        if (span := inside(server.span, model)) is not None
    ]
    holders += [
        Holder(promise.peer_id, span, False, said.get(promise.peer_id, believed.get(promise.peer_id)))
        for promise in moving.values()
        if not promise.slow and (span := inside(promise.span, model)) is not None
    ]
    return sorted(holders, key=_order)


def _counted(model: Model, moving: Collection[str]) -> list[Server]:
    """Servers that hold their blocks, and make no promise. One that has said for long that it loads holds none that nobody has
    online."""
    found = [server for server in model.servers if holds(server) and server.peer_id not in moving]
    if not any(server.slow for server in found):
        return found
    online = {block for server in found if server.state is PeerState.ONLINE for block in server.span}
    return [server for server in found if not server.slow or all(block in online for block in server.span)]


def holds(server: Server) -> bool:
    """A joining server counts as a public reservation, as in Petals; otherwise a slow load draws a herd. But anyone may write
    such a record for anybody, so not where nobody is there, nor for longer than a lease would stand."""
    return server.state is PeerState.ONLINE or server.awaited


def inside(span: Span, model: Model) -> Span | None:
    if span.end <= model.num_blocks:
        return span
    return Span(span.start, model.num_blocks) if span.start < model.num_blocks else None


def counts(num_blocks: int, holders: Iterable[Holder], *, online_only: bool = False) -> list[int]:
    """Holders of each block."""
    steps = [0] * (num_blocks + 1)
    for holder in holders:
        if holder.online or not online_only:
            steps[holder.span.start] += 1
            steps[holder.span.end] -= 1
    running = 0
    found: list[int] = []
    for step in steps[:-1]:
        running += step
        found.append(running)
    return found


def strengths(num_blocks: int, holders: Iterable[Holder]) -> list[tuple[int, float]]:
    """For each block the number of servers and the sum of their known throughputs."""
    servers = [0] * num_blocks
    known: list[list[float]] = [[] for _ in range(num_blocks)]
    for holder in holders:
        for block in holder.span:
            servers[block] += 1
            if holder.throughput is not None:
                known[block].append(holder.throughput)
    # Sorted, since a sum of floats depends on its order, and a plan must not depend on that of the records.
    return [(count, sum(sorted(rates))) for count, rates in zip(servers, known, strict=True)]


def stand_in(holders: Iterable[Holder]) -> float:
    """What a server of unknown throughput is taken to give where a figure is needed: the middle of the known ones."""
    known = [holder.throughput for holder in holders if holder.throughput is not None]
    return median(known) if known else 1.0


def find_holes(model: Model, promises: Iterable[Promise] = ()) -> tuple[Span, ...]:
    """Blocks that nobody serves, loads or has promised to serve."""
    return runs(holes_of(model, planned(model, promises)))


def holes_of(model: Model, holders: Iterable[Holder]) -> frozenset[int]:
    """A block that could not be read is no hole."""
    held = counts(model.num_blocks, holders)
    return frozenset(block for block in range(model.num_blocks) if held[block] == 0 and block not in model.unread_blocks)


def dark_blocks(model: Model, holders: Iterable[Holder]) -> frozenset[int]:
    """Blocks that no server online holds, though one may be on its way: every hole is one. Those not read are none."""
    online = counts(model.num_blocks, holders, online_only=True)
    return frozenset(block for block in range(model.num_blocks) if online[block] == 0 and block not in model.unread_blocks)


def safe_donors(
    model: Model, holders: list[Holder], promised: Collection[str], movable: Collection[str] | None
) -> list[Holder]:
    """Online servers that may leave: each of their blocks keeps another server that is online and stays."""
    staying = counts(model.num_blocks, holders, online_only=True)
    # How many blocks up to here have fewer than two: a span is safe when that number does not grow inside it.
    bare = [0]
    for count in staying:
        bare.append(bare[-1] + (count < 2))
    return [
        holder
        for holder in holders
        if holder.online
        and holder.peer_id not in promised
        and (movable is None or holder.peer_id in movable)
        and bare[holder.span.end] == bare[holder.span.start]
    ]


def without(model: Model, peer_id: str) -> Model:
    """The model as it would be if this server were not there."""
    return replace(model, servers=tuple(server for server in model.servers if server.peer_id != peer_id))


def moved(holders: Sequence[Holder], peer_id: str, target: Span) -> list[Holder]:
    """The holders once `peer_id` is on its way to `target`. They come in the order of `planned`, and leave in it."""
    after = [h for h in holders if h.peer_id != peer_id]
    for mover in (h for h in holders if h.peer_id == peer_id):
        insort(after, mover._replace(span=target, online=False), key=_order)
    return after


def _order(holder: Holder) -> tuple[int, int, str]:
    return holder.span.start, holder.span.end, holder.peer_id
