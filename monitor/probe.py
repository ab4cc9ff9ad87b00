"""Which servers to visit, for which blocks, and how long to wait: any number of dead peers costs one timeout in all.

Pure: who visits is an argument. Servers that answered last time come first, those that did not come last, so that a flood of
forged records or a hundred dead peers keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.snapshot import PeerState, Reading, Server, Visit, read_servers
from swarm.wire.records import ModelRecord, ServerState
from swarm.wire.spans import Span

VISITS_AT_ONCE = 128
"""Dials in flight: libp2p itself dials at most 160 at a time."""
SILENCE_S = 6.0
"""So long after the last answer of anybody the visits end: one dial's limit of 5 s, and a little for the machine."""

VISITS_S = 60.0
"""All visits together, however many answer and however slowly: a crowd of slow strangers must not use up the crawl's own limit,
so that nothing could be said of anybody. Ten thousand servers that answer within half a second take 40 s."""

Known = Mapping[str, Mapping[str, Server]]
"""Servers seen before, by prefix and peer id."""
Ask = Callable[[str, str, Span], Awaitable[Visit]]


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the spans to ask it for, one after another until it owns up to one."""

    prefix: str
    peer_id: str
    spans: tuple[Span, ...]
    rank: int
    before: Visit | None


def targets(models: Mapping[str, ModelRecord], readings: Mapping[str, Reading], known: Known, at: float) -> list[Target]:
    """Who says to be online, and who was seen before, whatever its records say now."""
    chosen: list[Target] = []
    for prefix, record in models.items():
        announced, _ = read_servers(prefix, record.num_blocks, readings.get(prefix, Reading({})), at)
        before = {p: s for p, s in known.get(prefix, {}).items() if s.span.end <= record.num_blocks}
        for peer_id in sorted(announced.keys() | before.keys()):
            spans: list[Span] = []
            if peer_id in announced and announced[peer_id][0].state is ServerState.ONLINE:
                spans.append(announced[peer_id][1])
            if peer_id in before and before[peer_id].state not in (PeerState.JOINING, PeerState.LEAVING):
                spans.append(before[peer_id].span)
            if spans:
                visit = before[peer_id].visit if peer_id in before else None
                rank = 1 if visit is None else 0 if visit.answered else 2
                chosen.append(Target(prefix, peer_id, tuple(dict.fromkeys(spans)), rank, visit))
    return sorted(chosen, key=lambda target: (target.rank, _turn(target), target.prefix, target.peer_id))


def _turn(target: Target) -> float:
    """Who answered fastest is first; those that did not answer take turns: who was asked longest ago."""
    if target.before is None:
        return 0.0
    return (target.before.round_trip_s or 0.0) if target.rank == 0 else target.before.at


async def visit_all(
    ask: Ask, chosen: list[Target], silence_s: float = SILENCE_S, limit_s: float = VISITS_S
) -> dict[str, dict[str, Visit]]:
    """By prefix and peer id. Who was not asked before time ran out keeps last time's failed visit, if any."""
    visits: dict[str, dict[str, Visit]] = {target.prefix: {} for target in chosen}
    answered = asyncio.Event()
    waiting = iter(chosen)

    async def work() -> None:
        for target in waiting:
            visit = await _visit(ask, target)
            visits[target.prefix][target.peer_id] = visit
            if visit.answered:
                answered.set()

    workers = [asyncio.ensure_future(work()) for _ in range(min(VISITS_AT_ONCE, len(chosen)))]
    everyone: asyncio.Future[list[None]] = asyncio.gather(*workers)
    clock = asyncio.get_running_loop().time
    ends_at = clock() + limit_s
    try:
        while not everyone.done() and (left_s := ends_at - clock()) > 0:
            answered.clear()
            hears = asyncio.ensure_future(answered.wait())
            both: set[asyncio.Future[Any]] = {everyone, hears}
            done, _ = await asyncio.wait(both, timeout=min(silence_s, left_s), return_when=asyncio.FIRST_COMPLETED)
            hears.cancel()
            if not done:
                break
    finally:
        everyone.cancel()
        ended = await asyncio.gather(*workers, return_exceptions=True)
    for end in ended:
        if isinstance(end, Exception):
            raise end
    for target in chosen:
        if target.peer_id not in visits[target.prefix] and target.before is not None and not target.before.answered:
            visits[target.prefix][target.peer_id] = target.before
    return visits


async def _visit(ask: Ask, target: Target) -> Visit:
    first = visit = await ask(target.peer_id, target.prefix, target.spans[0])
    for span in target.spans[1:]:
        if visit.answered or not visit.reached:
            break
        visit = await ask(target.peer_id, target.prefix, span)
    return visit if visit.answered else first
