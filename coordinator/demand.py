"""How much a model is asked for, beside others: what the staff says it is worth, times what is seen to be used. Knows neither
the plan nor who asks.

A model that does not run cannot be used, and few peers could make any figure large. So use counts little: for twice as much
at most, and each server for its share of the model's servers, however many sessions it says it has.
"""

from __future__ import annotations

from coordinator.followers import busy
from coordinator.models import Importance
from coordinator.seeing import Seen
from swarm.snapshot import PeerState

USE_COUNTS = 1.0
"""What a model gains where every server of it is in use: its demand is doubled."""
USUAL = 1.0
"""The importance of a model of which the staff says nothing."""


def demand_of(seen: Seen) -> float:
    """Without a unit: only how models compare says anything."""
    online = {server.peer_id for server in seen.model.servers if server.state is PeerState.ONLINE}
    in_use = online & busy(seen.swarm, seen.model.prefix, seen.now)
    return importance_of(seen.swarm, seen.model.prefix) * weighed(len(in_use), len(online))


def weighed(in_use: int, online: int) -> float:
    """1 for a model that nobody uses, 1 + USE_COUNTS for one of which every server is used."""
    return 1.0 + (USE_COUNTS * in_use / online if online else 0.0)


def importance_of(swarm: str, prefix: str) -> float:
    """What is said for this swarm goes before what is said for all."""
    said = dict(Importance.objects.filter(swarm__in=("", swarm), prefix=prefix).values_list("swarm", "weight"))
    return float(said.get(swarm, said.get("", USUAL)))
