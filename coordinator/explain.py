"""Why a hint was given, kept with its lease: what was known, which spans stood to choice, and who else could have moved.

Taken down at the moment of the decision; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.concerned import concerned
from coordinator.effects import effect_of, joined, placements
from swarm.placement import Choice, Circumstances, Placement, Promise, find_holes, still_useful
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.hints import HintRequest
from swarm.wire.spans import Span

ALTERNATIVES = 4
CANDIDATES = 12
"""Other servers that are looked at: enough to see why this one was asked, little enough to be done with every hint."""


WhyNot = Callable[[list[str]], Mapping[str, str]]
"""Of these peers, why each was not counted on, where something speaks against it (`coordinator.unasked`)."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What the decision was made on: all that the planner was given."""

    model: Model
    seen_at: datetime
    promises: tuple[Promise, ...]
    known: Circumstances


def inputs(basis: Basis, request: HintRequest, placement: Placement, why_not: WhyNot) -> dict[str, Any]:
    """JSON-ready. Spans are pairs, half-open."""
    model, kept, known, chosen = basis.model, basis.promises, basis.known, placement.span
    origin = request.current.to_span() if request.current else None
    others = placements(model, len(chosen), kept, request.peer, ALTERNATIVES + 1, known)
    spans = [chosen, *(other.span for other in others if other.span != chosen)]
    asked = _others_online(model, request.peer) if origin is not None else []
    candidates = [server.peer_id for server in asked]
    near = [chosen, *([origin] if origin is not None and request.model == model.prefix else [])]
    return {
        "observed_at": basis.seen_at.isoformat(),
        "num_blocks": model.num_blocks,
        "servers": len(model.servers),
        "asked": {
            "num_blocks": request.num_blocks,
            "num_blocks_max": request.num_blocks_max,
            "current": _pair(origin),
            "sessions_active": request.sessions_active,
        },
        "promises": [{"peer_id": p.peer_id, "span": _pair(p.span), "slow": p.slow} for p in kept],
        "ranking": [
            {
                "span": _pair(span),
                "blocks": span.in_words(),
                "effect": effect_of(model, joined(model, request.peer, span), known.rates).words,
            }
            for span in spans
        ],
        "candidates": _candidates(basis, asked, placement, why_not(candidates)) if asked else [],
        "concerned": concerned(model, [request.peer, *candidates], near, known),
    }


def leaves(model: Model, request: HintRequest) -> dict[str, Any]:
    """The model that a server is asked to leave, and who stays on its blocks there."""
    assert request.current is not None
    origin = request.current.to_span()
    staying = [
        s for s in model.servers if s.state is PeerState.ONLINE and s.peer_id != request.peer and s.span.overlaps(origin)
    ]
    return {
        "model": model.prefix,
        "span": _pair(origin),
        "blocks": origin.in_words(),
        "staying": [{"peer_id": s.peer_id, "span": _pair(s.span), "blocks": s.span.in_words()} for s in staying[:CANDIDATES]],
        "left": min(sum(block in s.span for s in staying) for block in origin),
    }


def models(ranking: Iterable[Choice]) -> list[dict[str, Any]]:
    """What an arriving server had the choice of, the best first. `worth` is demand times what is gained."""
    return [
        {
            "model": choice.prefix,
            "span": _pair(choice.placement.span),
            "blocks": choice.placement.span.in_words(),
            "reason": choice.placement.reason,
            "worth": choice.worth,
        }
        for choice in ranking
    ]


def _others_online(model: Model, asked: str) -> list[Server]:
    """Also who is in quarantine: it is there, and not asked."""
    there = [server for server in model.servers if server.state is PeerState.ONLINE or server.quarantined]
    return [server for server in there if server.peer_id != asked][:CANDIDATES]


def _candidates(basis: Basis, others: list[Server], placement: Placement, unasked: Mapping[str, str]) -> list[dict[str, Any]]:
    """What speaks against others' going there instead: None where they could have been asked as well."""
    promised = {promise.peer_id for promise in basis.promises}
    return [
        {
            "peer_id": server.peer_id,
            "span": _pair(server.span),
            "blocks": server.span.in_words(),
            "objection": _engaged(server, promised) or _objection(basis, server, placement) or unasked.get(server.peer_id),
        }
        for server in others
    ]


def _engaged(server: Server, promised: Collection[str]) -> str | None:
    if server.quarantined:
        return "it is in quarantine"
    return "it has a lease already" if server.peer_id in promised else None


def _objection(basis: Basis, server: Server, placement: Placement) -> str | None:
    return still_useful(
        basis.model,
        server.peer_id,
        _as_long_as(server.span, placement.span, basis),
        server.span,
        basis.promises,
        reason_code=placement.reason_code,
        known=basis.known,
    )


def _as_long_as(own: Span, target: Span, basis: Basis) -> Span:
    """The window at the target that a server would take with as many blocks as it has now: one that is shorter goes to where
    nobody serves."""
    length = min(len(own), basis.model.num_blocks)
    missing = (block for hole in find_holes(basis.model, basis.promises) for block in hole if block in target)
    latest = max(target.start, target.end - length)
    start = min(next(missing, target.start), latest, basis.model.num_blocks - length)
    return Span(start, start + length)


def _pair(span: Span | None) -> list[int] | None:
    return [span.start, span.end] if span else None
