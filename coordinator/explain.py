"""Why a hint was given, kept with its lease: what was known, which spans stood to choice, and who else could have moved.

Taken down at the moment of the decision; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from coordinator.effects import effect_of, joined, placements
from swarm.placement import Choice, Promise, still_useful
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import HintRequest
from swarm.wire.spans import Span

ALTERNATIVES = 4
CANDIDATES = 12
"""Other servers that are looked at: enough to see why this one was asked, little enough to be done with every hint."""


def inputs(model: Model, seen_at: datetime, request: HintRequest, promises: Iterable[Promise], chosen: Span) -> dict[str, Any]:
    """JSON-ready. Spans are pairs, half-open."""
    kept = tuple(promises)
    origin = request.current.to_span() if request.current else None
    others = [placement.span for placement in placements(model, len(chosen), kept, request.peer, ALTERNATIVES + 1)]
    spans = [chosen, *(span for span in others if span != chosen)]
    return {
        "observed_at": seen_at.isoformat(),
        "num_blocks": model.num_blocks,
        "servers": len(model.servers),
        "asked": {
            "num_blocks": request.num_blocks,
            "num_blocks_max": request.num_blocks_max,
            "current": _pair(origin),
            "sessions_active": request.sessions_active,
        },
        "promises": [{"peer_id": promise.peer_id, "span": _pair(promise.span)} for promise in kept],
        "ranking": [
            {
                "span": _pair(span),
                "blocks": span.in_words(),
                "effect": effect_of(model, joined(model, request.peer, span)).words,
            }
            for span in spans
        ],
        "candidates": _candidates(model, request.peer, chosen, kept) if origin is not None else [],
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


def _candidates(model: Model, asked: str, target: Span, promises: tuple[Promise, ...]) -> list[dict[str, Any]]:
    """Other servers online, and what speaks against their going there: None where they could have been asked as well."""
    promised = {promise.peer_id for promise in promises}
    others = [server for server in model.servers if server.state is PeerState.ONLINE and server.peer_id != asked]
    return [
        {
            "peer_id": server.peer_id,
            "span": _pair(server.span),
            "blocks": server.span.in_words(),
            "objection": "it has a lease already"
            if server.peer_id in promised
            else still_useful(model, server.peer_id, target, server.span, promises),
        }
        for server in others[:CANDIDATES]
    ]


def _pair(span: Span | None) -> list[int] | None:
    return [span.start, span.end] if span else None
