"""How often servers changed their blocks lately, from the minutes of the history. One query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

WITHIN = timedelta(hours=1)

_CHANGES = """
SELECT peer.peer_id, count(*) FROM (
  SELECT sample.peer_id, start, "end", lag(start) OVER same AS start_before, lag("end") OVER same AS end_before
  FROM monitor_peersample AS sample JOIN monitor_watchedmodel AS model ON model.id = sample.model_id
  WHERE model.swarm = %(swarm)s AND ts >= %(since)s AND state <> 'gone'
  WINDOW same AS (PARTITION BY sample.model_id, sample.peer_id ORDER BY ts)
) AS changed JOIN monitor_peer AS peer ON peer.id = changed.peer_id
WHERE start_before IS NOT NULL AND (start, "end") <> (start_before, end_before)
GROUP BY peer.peer_id
"""


def changes(swarm: str, now: float) -> dict[str, int]:
    """By peer id, those that changed at all."""
    with connection.cursor() as cursor:
        cursor.execute(_CHANGES, {"swarm": swarm, "since": datetime.fromtimestamp(now, UTC) - WITHIN})
        return dict(cursor.fetchall())
