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

PAUSE_AFTER_CHANGE = timedelta(minutes=30)
"""Who has changed its model is not asked to change again before this: a download of gigabytes should serve somebody first."""


def choices(seen: Mapping[str, Seen], request: HintRequest) -> tuple[Choice, ...]:
    """For an arriving server: all its models with the best place in each, the one to serve first."""
    rates = {prefix: one.known.rates[request.peer] for prefix, one in seen.items() if request.peer in one.known.rates}
    return choose_model((_demand(one, request.peer, request.offered[prefix]) for prefix, one in seen.items()), rates)


def transfer(seen: Mapping[str, Seen], request: HintRequest) -> Transfer | None:
    """For a server that serves `request.model`: the change to another model of its own that the plan asks of it now.

    Planned among the models that it offers. A server of a further model might be worth more to one of them; it asks as well,
    and the blocks are promised once.
    """
    serving = request.current.to_span() if request.current else None
    if serving is None or len(seen) < 2:
        return None
    swarm, now = seen[request.model].swarm, seen[request.model].now
    able = followers.offers(swarm, seen, now)
    able[request.peer] = {other.model: other.num_blocks_max for other in request.also}
    movable = frozenset().union(*(one.movable() for one in seen.values())) | {request.peer}
    movable -= _changed_lately(swarm, now)
    demands = [_demand(one, request.peer) for one in seen.values()]
    found = transfers(demands, lambda peer_id, prefix: able.get(peer_id, {}).get(prefix, 0), movable)
    own = next((move for move in found if move.peer_id == request.peer and move.source == request.model), None)
    # A server that is not where the crawl saw it has just moved: the next crawl tells.
    return own if own is not None and own.origin == serving else None


def why_not_any_more(source: Seen, target: Seen, lease: Lease) -> str | None:
    """Before the server unloads anything; both models are looked at again."""
    assert lease.origin is not None
    return objection(_demand(source, lease.peer_id), _demand(target, lease.peer_id), lease.peer_id, lease.origin, lease.span)


def _demand(seen: Seen, asker: str, num_blocks: int | None = None) -> Demand:
    """With `num_blocks` for an arrival of that size: then it is not there yet, whatever a record says."""
    model = seen.planned(but=asker)
    model = model if num_blocks is None else without(model, asker)
    return Demand(model, demand_of(seen), num_blocks or 1, seen.promises(but=asker), seen.known)


def _changed_lately(swarm: str, now: datetime) -> frozenset[str]:
    done = Lease.objects.filter(swarm=swarm, phase=Phase.DONE, closed_at__gt=now - PAUSE_AFTER_CHANGE).exclude(origin_prefix="")
    return frozenset(done.values_list("peer_id", flat=True))
