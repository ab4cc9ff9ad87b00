"""What the coordinator knows of servers beyond the snapshot: for how long they are there, when they last moved, and how much
of the throughput that they report is believed. With it the planner looks after redundancy and throughput, not only holes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from coordinator.models import Lease, Phase
from swarm.placement import Circumstances
from swarm.snapshot import Model
from swarm.throughput import Evidence, believed_rates

REMEMBERED = timedelta(hours=1)
"""Moves longer ago than this weigh nothing: the planner's cool-down is half of it."""


def circumstances(swarm: str, model: Model, first_seen: Mapping[str, float], now: datetime) -> Circumstances:
    """`first_seen` in Unix seconds, by peer id. A peer that is not listed there is not known."""
    ages = {peer_id: max(0.0, now.timestamp() - since) for peer_id, since in first_seen.items()}
    beliefs = believed_rates(model, {peer_id: Evidence(seen_s=age) for peer_id, age in ages.items()})
    moved = Lease.objects.of_model(swarm, model.prefix).filter(
        phase=Phase.DONE, origin_start__isnull=False, closed_at__gt=now - REMEMBERED
    )
    return Circumstances(
        ages_s=ages,
        moved_s_ago={
            lease.peer_id: (now - lease.closed_at).total_seconds() for lease in moved.order_by("closed_at") if lease.closed_at
        },
        reloading=Lease.objects.of_model(swarm, model.prefix).open().filter(origin_start__isnull=False).count(),
        rates={peer_id: belief.believed for peer_id, belief in beliefs.items() if belief.believed is not None},
    )
