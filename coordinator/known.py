"""What the coordinator knows of servers beyond the snapshot: for how long they are there, when they last moved, how much of the
throughput that they report is believed, and which of them sit in one network. With it the planner looks after redundancy
and throughput, not only holes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from coordinator import leases
from coordinator.models import Lease, Phase
from monitor.published import Published, ages_of, believed_rates_of
from swarm.operators import operators_of
from swarm.placement import Circumstances
from swarm.snapshot import Model, PeerState

REMEMBERED = timedelta(hours=1)
"""Moves longer ago than this weigh nothing: the planner's cool-down is half of it."""


def cautious(model: Model, published: Published) -> Model:
    """The model as the planner is to see it: a server whose answers are doubted holds its blocks, so that they are no hole, but
    is not the one that lets another leave them. Like one that still loads."""
    doubted = {peer for (prefix, peer), found in published.answers.items() if prefix == model.prefix and found.doubted}
    servers = (
        replace(server, state=PeerState.JOINING) if server.peer_id in doubted and server.state is PeerState.ONLINE else server
        for server in model.servers
    )
    return replace(model, servers=tuple(servers))


def circumstances(swarm: str, model: Model, standing: Circumstances, now: datetime) -> Circumstances:
    """`standing` (`standing_facts`) with what has moved and moves. Two queries."""
    moved = Lease.objects.of_model(swarm, model.prefix).filter(
        phase=Phase.DONE, origin_start__isnull=False, closed_at__gt=now - REMEMBERED
    )
    return replace(
        standing,
        moved_s_ago={
            lease.peer_id: (now - lease.closed_at).total_seconds() for lease in moved.order_by("closed_at") if lease.closed_at
        },
        reloading=leases.reloading(swarm, model.prefix, now),
    )


def standing_facts(published: Published, model: Model, now: datetime) -> Circumstances:
    """The part that an arrival is placed by: all but who has moved or moves. Pages use it too, so that they say what the hint
    would say. No query."""
    at = now.timestamp()
    return Circumstances(
        ages_s=ages_of(published, model.prefix, at),
        operators=operators_of(model),
        rates=believed_rates_of(published, model, at),
    )
