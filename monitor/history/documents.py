"""The history as public JSON. Unknown is null; times are RFC 3339 in UTC, lengths in minutes or seconds as named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from monitor.history import uptime, words
from monitor.history.minutes import moment
from monitor.history.models import Incident, PeerDay
from monitor.history.peers import Hour
from monitor.history.rules import How, Kind
from monitor.models import WatchedModel
from swarm.wire.spans import runs


def incident_document(row: Incident) -> dict[str, Any]:
    return {
        "id": row.pk,
        "swarm": row.swarm,
        "kind": row.kind,
        "severity": words.SEVERITY[Kind(row.kind)],
        "counts_as_downtime": row.kind == Kind.HOLE,
        "prefix": row.model.prefix if row.model else None,
        "title": words.title(row),
        "open": row.ended_before is None,
        "started": {"after": _moment(row.started_after), "before": _moment(row.started_before)},
        "ended": {"after": _moment(row.bad_at), "before": _moment(row.ended_before)} if row.ended_before else None,
        "blocks": [[span.start, span.end] for span in runs(row.blocks)],
        "left": [
            {"peer_id": entry["peer_id"], "how": entry["how"], "normally": entry["how"] == How.NORMALLY.value}
            for entry in row.left
        ],
        "restored_by": [entry["peer_id"] for entry in row.restored],
        "reason": row.reason or None,
        "url": f"/incidents/{row.pk}",
    }


def history_document(model: WatchedModel, now: float, days: int) -> dict[str, Any]:
    listed = uptime.model_days(model.swarm, now, days).get(model.prefix, [])
    blocks = uptime.block_tallies(model.pk, model.num_blocks, now, days)
    return {
        "swarm": model.swarm,
        "prefix": model.prefix,
        "days": [{"day": day.day.isoformat(), **_minutes(day.minutes)} for day in listed],
        "total": _minutes(uptime.total(listed)),
        "blocks": [
            {"block": index, "minutes_without_server": tally.broken, "minutes_with_one": tally.thin, "share_up": tally.share_up}
            for index, tally in enumerate(blocks)
        ],
    }


def models_of_peer(swarm: str, peer_id: str) -> list[WatchedModel]:
    served = PeerDay.objects.filter(peer__peer_id=peer_id).values("model_id")
    return list(WatchedModel.objects.of(swarm).filter(pk__in=served).order_by("prefix"))


def peer_document(prefix: str, counted: uptime.PeerUptime, hours: Sequence[Hour]) -> dict[str, Any]:
    """Hours of which nothing is known are left out."""
    return {
        "prefix": prefix,
        "up_minutes": counted.up,
        "known_minutes": counted.known,
        "share_up": counted.share_up,
        "hours": [_hour(hour) for hour in hours if (hour.throughput, hour.cache_mean) != (None, None)],
    }


def _hour(hour: Hour) -> dict[str, Any]:
    return {
        "begins_at": words.iso(moment(hour.at)),
        "throughput_tokens_per_second": hour.throughput,
        "cache_tokens_left_per_block": hour.cache_mean,
        "least_cache_tokens_left_per_block": hour.cache_least,
    }


def _minutes(tally: uptime.Tally) -> dict[str, Any]:
    return {
        "watched_minutes": tally.watched,
        "broken_minutes": tally.broken,
        "thin_minutes": tally.thin,
        "unknown_minutes": tally.unknown,
        "share_up": tally.share_up,
    }


def _moment(when: datetime | None) -> str | None:
    return words.iso(when) if when else None
