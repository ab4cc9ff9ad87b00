"""Where help is needed most, worst model first; and what a server more or less would do. The planner chooses, this explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.effects import NEWCOMER, Effect, effect_of, joined, placements
from coordinator.known import standing_facts
from coordinator.leases import Prospects
from monitor.published import Published, Standing, standing, standings
from swarm.coverage import Coverage
from swarm.placement import Circumstances, choose_span, without
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span, in_words, runs

NOTHING_PROMISED = Prospects()

USUAL_BLOCKS = 8
"""The size of server that advice is for where nobody says another: what a mid-size card holds of a large model."""
PLENTY = 6
"""Servers on every block from which on another one helps only by being fast."""


@dataclass(frozen=True, slots=True)
class Card:
    """One span worth serving: why, and what it would change."""

    span: Span
    reason_code: ReasonCode
    reason: str
    effect: str

    @property
    def blocks(self) -> str:
        return self.span.in_words()


@dataclass(frozen=True, slots=True)
class Needed:
    prefix: str
    num_blocks: int
    cards: tuple[Card, ...]
    summary: str


def needed(published: Published, prefix: str | None, num_blocks: int, prospects: Mapping[str, Prospects]) -> list[Needed]:
    """For one model, or all of them. `prospects` are open leases by model: what is promised needs no second server."""
    found = [item for item in standings(published) if prefix is None or item.model.prefix == prefix]
    return [_needed(published, item, num_blocks, prospects.get(item.model.prefix, NOTHING_PROMISED)) for item in found]


def most_needed(published: Published, model: Model, num_blocks: int, prospects: Prospects = NOTHING_PROMISED) -> Needed:
    return _needed(published, standing(published, model), num_blocks, prospects)


def _needed(published: Published, item: Standing, num_blocks: int, prospects: Prospects, limit: int = 3) -> Needed:
    """Each card's effect is what is left to gain once what is promised is loaded: the same as its reason."""
    model, known = item.model, facts_at(published, item.model)
    staying = _without_leavers(model, prospects)
    then = staying
    for promise in prospects.promises:
        then = without(then, promise.peer_id) if promise.slow else joined(then, promise.peer_id, promise.span)
    cards = [
        Card(
            placement.span,
            placement.reason_code,
            placement.reason,
            effect_of(then, joined(then, NEWCOMER, placement.span), known.rates).words,
        )
        for placement in placements(staying, num_blocks, prospects.promises, limit=limit, known=known)
    ]
    return Needed(model.prefix, min(num_blocks, model.num_blocks), tuple(cards), _summary(item.coverage, prospects))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`span` is where the planner would put the added server, None where none is added."""

    span: Span | None
    effect: Effect
    words: str


class NoSuchServer(LookupError):
    """The model has no server with this peer id."""


def what_if(
    published: Published,
    model: Model,
    add_blocks: int | None,
    leaves: str | None,
    throughput: float | None,
    prospects: Prospects = NOTHING_PROMISED,
) -> WhatIf:
    """One server leaves, then one of `add_blocks` blocks comes where it helps most; either may be left out."""
    then, known = model, facts_at(published, model)
    said: list[str] = []
    if leaves is not None:
        gone = next((server for server in model.servers if server.peer_id == leaves), None)
        if gone is None:
            raise NoSuchServer(f"no server of {model.prefix} has the peer id {leaves}")
        then = without(then, leaves)
        said.append(f"without {gone.record.public_name or 'server'} …{leaves[-6:]} on {gone.span.in_words()}")
    span = None
    if add_blocks is not None:
        promises = [promise for promise in prospects.promises if promise.peer_id != leaves]
        placement = choose_span(_without_leavers(then, prospects), add_blocks, promises, known=known, rate=throughput)
        span = placement.span
        then = joined(then, NEWCOMER, span, throughput)
        said.append(f"with a server of {len(span)} blocks on {span.in_words()}")
    effect = effect_of(model, then, known.rates)
    scenario = " and ".join(said)
    return WhatIf(span, effect, f"{scenario[:1].upper()}{scenario[1:]}: {effect.words}" if said else "Nothing is changed.")


def facts_at(published: Published, model: Model) -> Circumstances:
    """What the planner knows when it gives hints, at the moment at which this was read."""
    return standing_facts(published, model, datetime.fromtimestamp(published.read_at, UTC))


def _without_leavers(model: Model, prospects: Prospects) -> Model:
    for peer_id in prospects.leaving:
        model = without(model, peer_id)
    return model


def _summary(covered: Coverage, prospects: Prospects) -> str:
    """The planner counts what is promised and who goes, the verdict does not: so it is said."""
    kept = _blocks(promise.span for promise in prospects.promises if not promise.slow)
    slow = _blocks(promise.span for promise in prospects.promises if promise.slow)
    ours = f"; {in_words(kept)} are promised to servers that load them" if kept else ""
    late = f"; {in_words(slow)} are promised to servers that take long, and wanted of others too" if slow else ""
    gone = "".join(f"; {words}" for words in _leavers(prospects))
    return _standing(covered) + ours + late + gone


def _blocks(spans: Iterable[Span]) -> tuple[Span, ...]:
    return runs(block for span in spans for block in span)


def _leavers(prospects: Prospects) -> list[str]:
    counted = Counter(prospects.leaving.values())
    return [
        f"{count} {'server is' if count == 1 else 'servers are'} asked to change to {prefix}, and can be spared here"
        for prefix, count in sorted(counted.items())
    ]


def _standing(covered: Coverage) -> str:
    lowest = covered.min_redundancy
    if lowest is None or lowest < PLENTY:
        return covered.sentence()
    slowest = covered.bottleneck
    if slowest is None:
        return f"every block has {lowest} or more servers; what they manage is not known"
    as_slow = runs(block.index for block in covered.blocks if block.throughput == slowest.throughput)
    where = f"{in_words(as_slow)} (slowest, {slowest.throughput:,.0f} tok/s)"
    return f"every block has {lowest} or more servers; most useful now: faster servers for {where}"
