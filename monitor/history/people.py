"""Postgres -> who carried the swarm: blocks times hours online, not blocks at this moment. One read."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from monitor.history.minutes import last_days, moment

DAYS = 30
LISTED = 10

_BLOCK_HOURS = """
SELECT peer.peer_id, sum(minutes)::bigint / 60
FROM monitor_peerday AS served
JOIN monitor_watchedmodel AS model ON model.id = served.model_id AND model.swarm = %s
JOIN monitor_peer AS peer ON peer.id = served.peer_id, LATERAL unnest(served.block_minutes) AS minutes
WHERE served.day >= %s
GROUP BY peer.peer_id HAVING sum(minutes) >= 60 ORDER BY 2 DESC, 1 LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Carrier:
    """`block_hours` is watched and counted: eight blocks online for an hour are eight."""

    peer_id: str
    block_hours: int
    public_name: str = ""


def carriers(swarm: str, now: float, limit: int = LISTED) -> list[Carrier]:
    """The most first."""
    since = last_days(moment(now).date(), DAYS)[0]
    with connection.cursor() as cursor:
        cursor.execute(_BLOCK_HOURS, [swarm, since, limit])
        return [Carrier(peer_id, int(hours)) for peer_id, hours in cursor.fetchall()]
