"""Several models at once: which of those that a server offers it should serve, and whether it should change to another one.

`swarm.placement.fleet` decides; here it is told what each model needs, who offers what, and how much each is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from coordinator import followers
from coordinator.demand import demand_of
from coordinator.models import Lease, Phase
from coordinator.seeing import Seen
from swarm.placement import Choice, Demand, Transfer, choose_model, transfers, without
from swarm.placement.fleet import objection
from swarm.wire.hints import HintRequest
from swarm.wire.spans import Span, suffixes

PAUSE_AFTER_CHANGE = timedelta(minutes=30)
"""Who has changed its model is not asked to change again before this: a download of gigabytes should serve somebody first. Nor
is who was asked to, and did not come: the next server has its turn then."""


def choices(seen: Mapping[str, Seen], request: HintRequest) -> tuple[Choice, ...]:
    """For an arriving server: all its models with the best place in each, the one to serve first."""
    rates = {prefix: one.known.rates[request.peer] for prefix, one in seen.items() if request.peer in one.known.rates}
    demands = (_demand(one, request.peer, request.offered[prefix], disk_of(one, request)) for prefix, one in seen.items())
    return choose_model(demands, rates)


def changes(seen: Mapping[str, Seen], request: HintRequest) -> tuple[Transfer, ...]:
    """For a server that serves `request.model`: changes between its models that the plan asks for now, of it or of others.

    Planned among the models that it offers. A server of a further model might be worth more to one of them; it asks as well,
    and the blocks are promised once.
    """
    serving = request.current.to_span() if request.current else None
    if serving is None or len(seen) < 2:
        return ()
    swarm, now = seen[request.model].swarm, seen[request.model].now
    able, disks = followers.offers(swarm, seen, now)
    movable = frozenset().union(*(one.movable() for one in seen.values())) | {request.peer}
    movable -= _had_their_turn(swarm, now)
    demands = [_demand(one, request.peer) for one in seen.values()]
    found = transfers(
        demands,
        lambda peer_id, prefix: able.get(peer_id, {}).get(prefix, 0),
        movable,
        lambda peer_id, prefix: suffixes(disks.get(peer_id, {}).get(prefix, ()), seen[prefix].model.num_blocks),
    )
    # A server that is not where the crawl saw it has just moved: the next crawl tells.
    return tuple(m for m in found if m.peer_id != request.peer or (m.source, m.origin) == (request.model, serving))


def why_not_any_more(source: Seen, target: Seen, lease: Lease) -> str | None:
    """Before the server unloads anything; both models are looked at again."""
    assert lease.origin is not None
    return objection(_demand(source, lease.peer_id), _demand(target, lease.peer_id), lease.peer_id, lease.origin, lease.span)


def disk_of(seen: Seen, request: HintRequest) -> tuple[Span, ...]:
    """What the asking server need not download of this model."""
    return suffixes((span.to_span() for span in request.disk.get(seen.model.prefix, ())), seen.model.num_blocks)


def _demand(seen: Seen, asker: str, num_blocks: int | None = None, on_disk: tuple[Span, ...] = ()) -> Demand:
    """With `num_blocks` for an arrival of that size: then it is not there yet, whatever a record says."""
    model = seen.planned(but=asker)
    model = model if num_blocks is None else without(model, asker)
    return Demand(model, demand_of(seen), num_blocks or 1, seen.promises(but=asker), seen.known, on_disk)


def _had_their_turn(swarm: str, now: datetime) -> frozenset[str]:
    ended = Lease.objects.filter(swarm=swarm, phase__in=(Phase.DONE, Phase.EXPIRED), closed_at__gt=now - PAUSE_AFTER_CHANGE)
    return frozenset(ended.exclude(origin_prefix="").values_list("peer_id", flat=True))
