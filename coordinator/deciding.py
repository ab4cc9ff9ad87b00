"""Where the asking server should go, or why it should stay: the planner's answer on what is seen, within its model and, where
it offers several, between them. Promises nothing and records nothing; `coordinator.hints` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from coordinator import fleet
from coordinator.seeing import Seen
from swarm.placement import Advice, Choice, Pace, Placement, advise
from swarm.placement.fleet import why_chosen, why_transferred
from swarm.wire.hints import HintRequest, ReasonCode


@dataclass(frozen=True, slots=True)
class Going:
    """Where the asking server should go: to blocks of `seen.model`; `leaving` is another model, where it serves that now.
    `ranking` are all models that an arriving server had the choice of."""

    seen: Seen
    placement: Placement
    leaving: Seen | None = None
    ranking: tuple[Choice, ...] = ()


def decide(seen: Mapping[str, Seen], request: HintRequest) -> Going | Advice:
    """Where to go, or why to stay. A hole of the model that a server is in comes before one of another; what only wins
    throughput there comes after."""
    own = seen[request.model]
    if request.current is None:
        return _arrival(seen, request)
    advice = _advise(own, request, request.num_blocks)
    fills = advice.placement is not None and advice.reason_code in (ReasonCode.HOLE, ReasonCode.CHAIN)
    changes = () if fills else fleet.changes(seen, request)
    for change in changes:
        if change.peer_id == request.peer:
            placed = change.placement
            why = Placement(placed.span, placed.reason_code, why_transferred(change), change.worth)
            return Going(seen[change.target], why, own)
    if advice.placement is not None:
        return Going(own, advice.placement)
    if changes:
        lacking = f"{changes[0].target}: {changes[0].placement.reason}"
        return Advice(ReasonCode.OTHER_SERVER_MOVES, f"{lacking}; another server is the better one to change to it")
    return advice


def _arrival(seen: Mapping[str, Seen], request: HintRequest) -> Going | Advice:
    if len(seen) == 1:
        advice = _advise(seen[request.model], request, request.num_blocks_max)
        return advice if advice.placement is None else Going(seen[request.model], advice.placement)
    ranking = fleet.choices(seen, request)
    best = seen[ranking[0].prefix]
    advice = _advise(best, request, request.offered[ranking[0].prefix])
    if advice.placement is None:
        return advice
    placed = advice.placement
    return Going(best, Placement(placed.span, placed.reason_code, why_chosen(ranking), placed.gain), ranking=ranking)


def _advise(seen: Seen, request: HintRequest, num_blocks: int) -> Advice:
    """Within one model."""
    return advise(
        seen.planned(but=request.peer),
        request.peer,
        num_blocks,
        serving=request.current.to_span() if request.current else None,
        promises=seen.promises(but=request.peer),
        movable=seen.movable(),
        known=seen.known,
        # What it says of its speed was measured with the model that it asks about.
        pace=_pace(seen, request) if seen.model.prefix == request.model else None,
    )


def _pace(seen: Seen, request: HintRequest) -> Pace | None:
    """What the server says of its own speed, held to what its own rate or a usual server's is believed to be: nobody gets
    better blocks by a large word."""
    if request.forward_rps is None:
        return None
    rates = seen.known.rates
    most = max(rates.get(request.peer, 0.0), median(rates.values())) if rates else None
    line = [rate for rate in (request.network_rps, most) if rate is not None]
    return Pace(request.forward_rps, min(line) if line else None)
