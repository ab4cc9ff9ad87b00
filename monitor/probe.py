"""Which servers to visit, for which blocks, and how long to wait: any number of dead peers costs one timeout, and those that
died since last time one more.

Pure: who visits is an argument. Servers that answered last time come first, those that did not come last, so that a flood of
forged records or a hundred dead peers keeps nobody else waiting. One lost dial changes nothing: who answered last time and
does not now is asked once more, when everyone has been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from swarm.claims import Claim, read_servers
from swarm.snapshot import Outcome, Reading, Server, Visit
from swarm.wire.records import ModelRecord, ServerState
from swarm.wire.spans import Span, runs

VISITS_AT_ONCE = 128
"""Dials in flight: libp2p itself dials at most 160 at a time."""
SILENCE_S = 6.0
"""So long after the last answer of anybody the visits end: one dial's limit of 5 s, and a little for the machine."""
REFUSED_FOR_S = 5.2
"""After a dial that failed, libp2p answers every other one for 5 s with that failure, and dials nobody."""
SILENCE_AGAIN_S = 8.0
"""The same for the second tries: that pause, and almost 3 s, as long as a peer behind a relay takes. Who was silent and refused
nothing has no pause, and its whole timeout."""
SPANS_ASKED = 4
"""Of one server: where it was, what its newest record claims, and what else stands in the DHT for it."""

VISITS_S = 60.0
"""All visits together, however many answer and however slowly: a crowd of slow strangers must not use up the crawl's own limit,
so that nothing could be said of anybody. Ten thousand servers that answer within half a second take 40 s."""

Known = Mapping[str, Mapping[str, Server]]
"""Servers seen before, by prefix and peer id."""
Ask = Callable[[str, str, Span], Awaitable[Visit]]
Answers = list[tuple[Span, Visit]]
"""What one server said, for each span that it was asked for."""

_SETTLED = (Outcome.ANSWERED, Outcome.NOT_HELD, Outcome.PROTOCOL_ABSENT)
"""The server's own word; anything else may be the fault of the way to it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the spans to ask it for, one after another. `claim` is that of its newest record, if any."""

    prefix: str
    peer_id: str
    spans: tuple[Span, ...]
    rank: int
    before: Visit | None
    claim: Span | None = None

    @property
    def answered_before(self) -> bool:
        return self.before is not None and self.before.answered


def targets(models: Mapping[str, ModelRecord], readings: Mapping[str, Reading], known: Known, at: float) -> list[Target]:
    """Who stands in the DHT, in whatever state, and who was seen before, whatever its records say now: anyone may write that
    a server loads or leaves. Who is said to do so, and did not answer last time, comes last."""
    chosen: list[Target] = []
    for prefix, record in models.items():
        announced, _ = read_servers(prefix, record.num_blocks, readings.get(prefix, Reading({})), at)
        before = known.get(prefix, {})
        for peer_id in sorted(announced.keys() | before.keys()):
            claim, server = announced.get(peer_id), before.get(peer_id)
            spans = _spans(claim, server, record.num_blocks)
            if spans:
                visit = server.visit if server is not None else None
                target = Target(prefix, peer_id, spans, _rank(claim, visit), visit, claim.span if claim is not None else None)
                chosen.append(target)
    return sorted(chosen, key=lambda target: (target.rank, _turn(target), target.prefix, target.peer_id))


def _turn(target: Target) -> float:
    """Who answered fastest is first; those that did not answer take turns: who was asked longest ago."""
    if target.before is None:
        return 0.0
    return (target.before.round_trip_s or 0.0) if target.rank == 0 else target.before.at


def _spans(claim: Claim | None, before: Server | None, num_blocks: int) -> tuple[Span, ...]:
    """Where it was comes first: a claim that is narrower always gets an answer, and would hide the rest of what it serves."""
    spans: list[Span] = []
    if before is not None:
        # Of a server that was silent last time, what it was asked for then: its record may have been forged meanwhile.
        was = before.visit.span if before.visit is not None and before.visit.span is not None else before.span
        spans += [was] if was.end <= num_blocks else []
    if claim is not None:
        spans += [claim.span, *claim.others]
    return tuple(dict.fromkeys(spans))[:SPANS_ASKED]


def _rank(claim: Claim | None, visit: Visit | None) -> int:
    if visit is not None and visit.answered:
        return 0
    if claim is not None and claim.record.state is not ServerState.ONLINE:
        return 3
    return 1 if visit is None else 2


async def visit_all(
    ask: Ask,
    chosen: list[Target],
    silence_s: float = SILENCE_S,
    silence_again_s: float = SILENCE_AGAIN_S,
    refused_for_s: float = REFUSED_FOR_S,
    limit_s: float = VISITS_S,
) -> dict[str, dict[str, Visit]]:
    """By prefix and peer id. Who was not asked before time ran out keeps last time's failed visit, if any."""
    ends_at = asyncio.get_running_loop().time() + limit_s
    said = await _round(ask, chosen, silence_s, ends_at)
    again = [target for target in chosen if target.answered_before and not said.get(target, _NOBODY).settled]
    waits_until = {target: said[target].ended + refused_for_s for target in again if target in said and said[target].refused}
    more = await _round(ask, sorted(again, key=lambda t: waits_until.get(t, 0.0)), silence_again_s, ends_at, waits_until)
    visits: dict[str, dict[str, Visit]] = {target.prefix: {} for target in chosen}
    for target in chosen:
        visit = _visit(target, said.get(target, _NOBODY).answers, more.get(target, _NOBODY).answers)
        if visit is not None:
            visits[target.prefix][target.peer_id] = visit
    return visits


@dataclass
class _Said:
    """What one server said, and when it was asked for the last time, by the clock of the event loop."""

    answers: Answers = field(default_factory=list)
    ended: float = 0.0

    @property
    def settled(self) -> bool:
        return bool(self.answers) and all(visit.outcome in _SETTLED for _, visit in self.answers)

    @property
    def refused(self) -> bool:
        return any(visit.outcome is Outcome.REFUSED for _, visit in self.answers)


_NOBODY = _Said()


async def _round(
    ask: Ask, chosen: list[Target], silence_s: float, ends_at: float, waits_until: Mapping[Target, float] | None = None
) -> dict[Target, _Said]:
    """Asks everyone, until nobody has answered for so long, or all time is used up; some not before a given time."""
    said: dict[Target, _Said] = {}
    answered = asyncio.Event()
    waiting = iter(chosen)
    loop = asyncio.get_running_loop()

    async def work() -> None:
        for target in waiting:
            await asyncio.sleep((waits_until or {}).get(target, 0.0) - loop.time())
            mine = said[target] = _Said()
            await _ask_for_all(ask, target, mine.answers, answered)
            mine.ended = loop.time()

    workers = [asyncio.ensure_future(work()) for _ in range(min(VISITS_AT_ONCE, len(chosen)))]
    everyone = asyncio.gather(*workers, return_exceptions=True)
    try:
        while not everyone.done() and (left_s := ends_at - loop.time()) > 0:
            answered.clear()
            hears = asyncio.ensure_future(answered.wait())
            both: set[asyncio.Future[Any]] = {everyone, hears}
            done, _ = await asyncio.wait(both, timeout=min(silence_s, left_s), return_when=asyncio.FIRST_COMPLETED)
            hears.cancel()
            if not done:
                break
    finally:
        for worker in workers:
            worker.cancel()
        ended = await everyone
    for end in ended:
        if isinstance(end, Exception):
            raise end
    return said


async def _ask_for_all(ask: Ask, target: Target, answers: Answers, answered: asyncio.Event) -> None:
    """For each span that it has not owned up to already, for as long as somebody is there."""
    held: set[int] = set()
    for span in target.spans:
        if held.issuperset(span):
            continue
        visit = await ask(target.peer_id, target.prefix, span)
        answers.append((span, visit))
        if visit.answered:
            held.update(span)
            answered.set()
        elif not visit.reached or visit.outcome is Outcome.PROTOCOL_ABSENT:
            break


def _visit(target: Target, first: Answers, second: Answers) -> Visit | None:
    """What all that it said comes to, as one visit. Its own "no" of the second time undoes the "yes" of the first."""
    words = dict(first)
    for span, visit in second:
        words[span] = visit if visit.reached or span not in words else _with_addresses(words[span], visit)
    held = [span for span, visit in words.items() if visit.answered]
    if held:
        # A server serves one run of blocks. Where one says yes to blocks far apart, its record decides, or the larger part.
        parts = runs(block for span in held for block in span)
        part = max(parts, key=lambda run: (target.claim is not None and run.covers(target.claim), len(run), -run.start))
        own = next(visit for span, visit in words.items() if visit.answered and part.covers(span))
        return replace(own, span=part)
    if not words:
        return None if target.answered_before else target.before
    # What it did not deny is what it is to be asked for next time as well; who denied everything is judged by its claim.
    open_words = (span for span, visit in words.items() if visit.outcome is not Outcome.NOT_HELD)
    chosen = next(open_words, target.claim if target.claim in words else next(iter(words)))
    return replace(words[chosen], span=chosen)


def _with_addresses(silent: Visit, later: Visit) -> Visit:
    """libp2p names the addresses that it tried only once it has given up, which takes longer than anybody here waits."""
    return silent if silent.addresses or silent.answered else replace(silent, addresses=later.addresses, via=later.via)
