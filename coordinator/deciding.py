"""Where the asking server should go, or why it should stay: the planner's answer on what is seen, within its model and, where
it offers several, between them. Promises nothing and records nothing; `coordinator.hints` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from coordinator import fleet
from coordinator.seeing import Seen
from coordinator.sizes import longer_spans
from swarm.placement import Advice, Choice, Circumstances, Pace, Placement, advise, find_holes
from swarm.placement.fleet import why_chosen, why_transferred
from swarm.wire.hints import HintRequest, ReasonCode

FILLING = (ReasonCode.HOLE, ReasonCode.CHAIN)


@dataclass(frozen=True, slots=True)
class Going:
    """Where the asking server should go: to blocks of `seen.model`; `leaving` is another model, where it serves that now.
    `ranking` are all models that an arriving server had the choice of."""

    seen: Seen
    placement: Placement
    leaving: Seen | None = None
    ranking: tuple[Choice, ...] = ()

    @property
    def fills_hole(self) -> bool:
        """A server changes its model for nothing less."""
        return self.leaving is not None or self.placement.reason_code in FILLING


def decide(seen: Mapping[str, Seen], request: HintRequest) -> Going | Advice:
    """Where to go, or why to stay. A hole of the model that a server is in comes before one of another; what only wins
    throughput there comes after."""
    own = seen[request.model]
    if request.current is None:
        return _arrival(seen, request)
    advice = _advise(own, request)
    fills = advice.placement is not None and advice.reason_code in FILLING
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
        advice = _advise(seen[request.model], request)
        return advice if advice.placement is None else Going(seen[request.model], advice.placement)
    ranking = fleet.choices(seen, request)
    best = seen[ranking[0].prefix]
    advice = _advise(best, request)
    if advice.placement is None:
        return advice
    placed = advice.placement
    return Going(best, Placement(placed.span, placed.reason_code, why_chosen(ranking), placed.gain), ranking=ranking)


def _advise(seen: Seen, request: HintRequest) -> Advice:
    """Within one model. A serving server keeps the length of its span, unless holes need more: what a longer one would do to
    its speed the planner does not weigh.

    What is true of the asker here must be what all others are told of it: a server that is the one to move in their plans, and
    not in its own, would keep all of them where they are.
    """
    model, promises = seen.planned(but=request.peer), seen.promises(but=request.peer)
    arriving, most = request.current is None, request.offered[seen.model.prefix]
    holes = not arriving and bool(find_holes(model, promises))
    movable = seen.movable(elective=not holes)
    fitting = {**seen.capacities(), request.peer: most} if holes else {}
    longer = longer_spans(model, promises, movable | {request.peer}, fitting) if holes else None
    serving = request.current.to_span() if request.current else None
    shown = seen.shown.get(request.peer)
    advice = advise(
        model,
        request.peer,
        # Not the length that it tells: of others it is not asked either.
        most if serving is None or longer else len(shown or serving),
        serving=serving,
        promises=promises,
        movable=movable,
        capacities=longer,
        known=_known(seen, request),
        # What it says of its speed was measured with the model that it asks about.
        pace=_pace(seen, request) if seen.model.prefix == request.model else None,
    )
    if advice.placement is None or serving is None or shown in (None, serving):
        return advice
    where = f"it serves {serving.in_words()}, and was seen with {shown.in_words()} by the last crawl"
    return Advice(ReasonCode.TOO_SOON, f"{where}: nobody is moved on before the next crawl sees it")


def _known(seen: Seen, request: HintRequest) -> Circumstances:
    kept = fleet.disk_of(seen, request)
    return replace(seen.known, on_disk={request.peer: kept}) if kept else seen.known


def _pace(seen: Seen, request: HintRequest) -> Pace | None:
    """What the server says of its own speed, held to what its own rate or a usual server's is believed to be: nobody gets
    better blocks by a large word."""
    if request.forward_rps is None:
        return None
    rates = seen.known.rates
    most = max(rates.get(request.peer, 0.0), median(rates.values())) if rates else None
    line = [rate for rate in (request.network_rps, most) if rate is not None]
    return Pace(request.forward_rps, min(line) if line else None)
