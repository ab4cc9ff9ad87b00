"""Who served before: of many models at once, what the newest minute in which each was watched says. Reads samples only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from django.db import connection

from monitor.history.minutes import moment
from swarm.snapshot import PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

_NEWEST = """
SELECT newest.model_id, newest.ts, peer.peer_id, sample.start, sample."end", sample.state
FROM unnest(%(models)s::bigint[]) AS asked (model_id)
CROSS JOIN LATERAL (
  SELECT minute.model_id, minute.ts FROM monitor_modelminute AS minute
  WHERE minute.model_id = asked.model_id AND minute.ts <= %(last)s ORDER BY minute.ts DESC LIMIT 1) AS newest
LEFT JOIN (monitor_peersample AS sample JOIN monitor_peer AS peer ON peer.id = sample.peer_id)
  ON sample.model_id = newest.model_id AND sample.ts = newest.ts
"""


def earlier_servers(models: Collection[int], last: float | None) -> dict[int, tuple[tuple[Server, ...], float]]:
    """By model its servers in the newest minute that is not after the look at `last`, and that minute in Unix seconds; without
    those that were not watched. One query."""
    if last is None or not models:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, {"models": list(models), "last": moment(last)})
        rows = cursor.fetchall()
    minutes: dict[int, float] = {}
    servers: dict[int, list[Server]] = defaultdict(list)
    for model_id, minute, peer_id, start, end, state in rows:
        minutes[model_id] = minute.timestamp()
        if peer_id is not None:
            span = Span(start, end)
            servers[model_id].append(Server(peer_id, span, PeerState(state), _record(span), expires_at=0.0))
    return {model_id: (_ordered(servers[model_id]), minute) for model_id, minute in minutes.items()}


def _ordered(servers: list[Server]) -> tuple[Server, ...]:
    return tuple(sorted(servers, key=lambda server: (server.span, server.peer_id)))


def _record(span: Span) -> ServerRecord:
    return ServerRecord(ServerState.ONLINE, None, span)
