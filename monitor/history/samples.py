"""One crawl -> the samples of its minute. Two crawls in one minute leave the worse of what they saw.

Runs inside the transaction that stores the crawl. Storing the same crawl again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connection

from monitor.history.fields import as_multirange
from monitor.history.minutes import Minutes, bridged, day_of, minute_of_day, minute_start, moment
from monitor.models import ServerRow, WatchedModel
from monitor.serving import cache_tokens_of
from swarm.coverage import coverage
from swarm.snapshot import Model, PeerState, Server, Snapshot
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

Rates = Mapping[str, Mapping[str, float]]
"""Tokens per second that are believed at the time of the crawl, by prefix and peer id."""
MOST_TOKENS = 2**31 - 1
"""What the column holds: a thousand times the longest session of any server. Who claims more is not the better for it."""

_WATCHED = """
INSERT INTO monitor_swarmday (swarm, day, watched, last_observed_at) VALUES (%(swarm)s, %(day)s, %(watched)s, %(at)s)
ON CONFLICT (swarm, day) DO UPDATE SET
  watched = monitor_swarmday.watched | excluded.watched,
  last_observed_at = greatest(monitor_swarmday.last_observed_at, excluded.last_observed_at)
"""

_MODELS = """
INSERT INTO monitor_modelminute AS was (model_id, ts, missing, thin, unread, servers, bottleneck, bottleneck_believed)
SELECT model, %(minute)s, missing, thin, unread, servers, bottleneck, bottleneck_believed
FROM unnest(%(models)s::bigint[], %(missing)s::int4multirange[], %(thin)s::int4multirange[], %(unread)s::int4multirange[],
            %(servers)s::int[], %(reported)s::float8[], %(believed)s::float8[])
  AS seen (model, missing, thin, unread, servers, bottleneck, bottleneck_believed)
ON CONFLICT (model_id, ts) DO UPDATE SET
  missing = was.missing + excluded.missing,
  thin = was.thin + excluded.thin - was.missing - excluded.missing,
  unread = was.unread * excluded.unread,
  servers = least(was.servers, excluded.servers),
  bottleneck = least(was.bottleneck, excluded.bottleneck),
  bottleneck_believed = least(was.bottleneck_believed, excluded.bottleneck_believed)
"""

_PEERS = """
INSERT INTO monitor_peer (peer_id)
SELECT DISTINCT name FROM unnest(%(names)s::text[]) AS name
WHERE NOT EXISTS (SELECT FROM monitor_peer WHERE peer_id = name) ORDER BY name
ON CONFLICT DO NOTHING
"""

_SAMPLES = """
INSERT INTO monitor_peersample AS was (model_id, peer_id, ts, start, "end", state, up, throughput, cache_tokens)
SELECT model, peer.id, %(minute)s, seen.start, seen."end", seen.state, seen.up, seen.throughput, seen.cache_tokens
FROM unnest(%(models)s::bigint[], %(names)s::text[], %(starts)s::int[], %(ends)s::int[], %(states)s::text[],
            %(ups)s::bool[], %(throughputs)s::float8[], %(caches)s::int[])
  AS seen (model, name, start, "end", state, up, throughput, cache_tokens)
JOIN monitor_peer AS peer ON peer.peer_id = seen.name
ON CONFLICT (model_id, peer_id, ts) DO UPDATE SET
  start = excluded.start, "end" = excluded."end", state = excluded.state,
  up = CASE WHEN was.up AND excluded.up THEN true ELSE coalesce(was.up AND excluded.up, was.up, excluded.up) END,
  throughput = excluded.throughput, cache_tokens = least(was.cache_tokens, excluded.cache_tokens)
"""

_ABSENT = """
UPDATE monitor_peersample SET state = 'gone', up = false
WHERE ts = %(minute)s AND model_id = ANY(%(all_models)s) AND NOT EXISTS (
  SELECT FROM unnest(%(models)s::bigint[], %(names)s::text[]) AS seen (model, name)
  JOIN monitor_peer AS peer ON peer.peer_id = seen.name
  WHERE seen.model = monitor_peersample.model_id AND peer.id = monitor_peersample.peer_id)
"""

_BRIDGE = """
WITH bridged AS (
  INSERT INTO monitor_modelminute (model_id, ts, missing, thin, unread, servers, bottleneck, bottleneck_believed)
  SELECT model_id, ts.ts, missing, thin, unread, servers, bottleneck, bottleneck_believed
  FROM monitor_modelminute AS was CROSS JOIN unnest(%(minutes)s::timestamptz[]) AS ts (ts)
  WHERE was.ts = %(earlier)s AND model_id IN (SELECT id FROM monitor_watchedmodel WHERE swarm = %(swarm)s)
  ON CONFLICT DO NOTHING
  RETURNING model_id, ts)
INSERT INTO monitor_peersample (model_id, peer_id, ts, start, "end", state, up, throughput, cache_tokens)
SELECT model_id, peer_id, bridged.ts, start, "end", state, up, throughput, cache_tokens
FROM bridged JOIN monitor_peersample AS was USING (model_id)
WHERE was.ts = %(earlier)s
ON CONFLICT DO NOTHING
"""
"""A minute that was looked at itself, before the clock was set back, needs no bridge: who was not there then was not there."""


def _server(peer_id: str, span: Span, state: PeerState) -> Server:
    return Server(peer_id, span, state, ServerRecord(ServerState.ONLINE, None, span), expires_at=0.0)


def write(snapshot: Snapshot, rows: dict[str, WatchedModel], rates: Rates, earlier_at: float | None, interval_s: float) -> None:
    """`earlier_at` is when the crawl before saw the swarm; None where it did not, and nothing can be bridged."""
    minutes = bridged(earlier_at, snapshot.at, interval_s)
    with connection.cursor() as cursor:
        for at in (*minutes, snapshot.at):
            watched = Minutes.of({minute_of_day(at)}).text
            seen_at = moment(snapshot.at if at == snapshot.at else at)
            cursor.execute(_WATCHED, {"swarm": snapshot.swarm, "day": day_of(at), "watched": watched, "at": seen_at})
        if minutes and earlier_at is not None:
            bridge: dict[str, Any] = {
                "minutes": [moment(at) for at in minutes],
                "earlier": moment(minute_start(earlier_at)),
                "swarm": snapshot.swarm,
            }
            cursor.execute(_BRIDGE, bridge)
        minute = moment(minute_start(snapshot.at))
        if snapshot.models:
            cursor.execute(_MODELS, {"minute": minute, **_model_columns(snapshot.models, rows, rates)})
            columns = _peer_columns(snapshot, rows)
            cursor.execute(_PEERS, columns)
            cursor.execute(_SAMPLES, {"minute": minute, **columns})
            everyone = [rows[model.prefix].pk for model in snapshot.models]
            cursor.execute(_ABSENT, {"minute": minute, "all_models": everyone, **columns})


def _model_columns(models: Sequence[Model], rows: dict[str, WatchedModel], rates: Rates) -> dict[str, Any]:
    covered = [coverage(model, rates.get(model.prefix)) for model in models]
    slowest = [found.bottleneck for found in covered]
    return {
        "models": [rows[model.prefix].pk for model in models],
        "missing": [as_multirange(found.holes) for found in covered],
        "thin": [as_multirange(found.thin) for found in covered],
        "unread": [as_multirange(found.unseen) for found in covered],
        "servers": [sum(server.state is PeerState.ONLINE for server in model.servers) for model in models],
        "reported": [_least(block.reported for block in found.blocks) for found in covered],
        "believed": [block.throughput if block else None for block in slowest],
    }


def _least(figures: Iterable[float | None]) -> float | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _peer_columns(snapshot: Snapshot, rows: dict[str, WatchedModel]) -> dict[str, Any]:
    present = [(rows[model.prefix].pk, server) for model in snapshot.models for server in model.servers]
    unseen = [
        (row.model_id, _server(row.peer_id, Span(row.start, row.end), PeerState.NOT_CHECKED)) for row in _unread(rows, present)
    ]
    everyone = [*present, *unseen]
    return {
        "models": [model for model, _ in everyone],
        "names": [server.peer_id for _, server in everyone],
        "starts": [server.span.start for _, server in everyone],
        "ends": [server.span.end for _, server in everyone],
        "states": [server.state.value for _, server in everyone],
        "ups": [_up(server.state) for _, server in everyone],
        "throughputs": [server.record.throughput for _, server in everyone],
        "caches": [_cache_tokens(server) for _, server in everyone],
    }


def _unread(rows: dict[str, WatchedModel], present: list[tuple[int, Server]]) -> list[ServerRow]:
    """Servers that the snapshot could not read: the store has just marked them."""
    here = {(model, server.peer_id) for model, server in present}
    marked = ServerRow.objects.filter(model__in=rows.values(), state=PeerState.NOT_CHECKED.value)
    return [row for row in marked if (row.model_id, row.peer_id) not in here]


def _cache_tokens(server: Server) -> int | None:
    """Of a server that is not online, what its record says is no news."""
    tokens = cache_tokens_of(server) if server.state is PeerState.ONLINE else None
    return None if tokens is None else min(tokens, MOST_TOKENS)


def _up(state: PeerState) -> bool | None:
    return None if state is PeerState.NOT_CHECKED else state is PeerState.ONLINE
