"""One past day of the history, line by line: every minute that was counted, and nothing that was not. No addresses, no names of
servers; hidden peers under what stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import groupby
from typing import Any

from django.db.models import Q

from monitor.hiding.models import hidden_list
from monitor.history.documents import incident_document
from monitor.history.incidents import confirmed
from monitor.history.minutes import Minutes, midnight
from monitor.history.models import BlockDay, ModelDay, ModelHour, PeerDay, SwarmDay
from monitor.models import WatchedModel
from monitor.privacy import without_addresses

FORM = 1
"""The form of the lines; a reader that meets a larger number stops."""


def lines_of(day: date) -> Iterator[dict[str, Any]]:
    """In an order that depends on nothing but the history, so that the same day is always the same file."""
    yield {"type": "export", "form": FORM, "day": day.isoformat()}
    for swarm, watched in SwarmDay.objects.filter(day=day).order_by("swarm").values_list("swarm", "watched"):
        yield {"type": "swarm_day", "swarm": swarm, "watched": spans(watched)}
    days = {row.model_id: row for row in ModelDay.objects.filter(day=day)}
    models = WatchedModel.objects.filter(pk__in=days).order_by("swarm", "prefix")
    for model in models:
        yield _model_day(model, days[model.pk])
        yield from _hours(model, day)
        yield from _blocks(model, day)
        yield from _servers(model, day)
    for swarm in sorted({*SwarmDay.objects.filter(day=day).values_list("swarm", flat=True)}):
        yield from _incidents(swarm, day)


def spans(minutes: Minutes | None) -> list[list[int]]:
    """Minutes of the day as half-open runs: [[0, 1440]] is all of it."""
    marks = enumerate(minutes.text if minutes is not None else "")
    runs = []
    for mark, group in groupby(marks, key=lambda item: item[1]):
        if mark == "1":
            found = list(group)
            runs.append([found[0][0], found[-1][0] + 1])
    return runs


def _model_day(model: WatchedModel, row: ModelDay) -> dict[str, Any]:
    hidden = hidden_list()
    repository = without_addresses(model.repository) if model.repository else None
    return {
        "type": "model_day",
        **_of(model),
        "repository": None if repository and hidden.hides(repository) else repository,
        "num_blocks": model.num_blocks,
        "size_known": not model.at_least,
        **{name: spans(getattr(row, name)) for name in ("watched", "broken", "thin", "unknown")},
    }


def _hours(model: WatchedModel, day: date) -> Iterable[dict[str, Any]]:
    start = midnight(day)
    for row in ModelHour.objects.filter(model=model, hour__gte=start, hour__lt=start + timedelta(days=1)).order_by("hour"):
        yield {
            "type": "model_hour",
            **_of(model),
            "hour": row.hour.hour,
            "servers_min": row.servers_min,
            "servers_mean": row.servers_mean,
            "bottleneck_tokens_per_second": row.bottleneck_mean,
            "believed_bottleneck_tokens_per_second": row.bottleneck_believed_mean,
        }


def _blocks(model: WatchedModel, day: date) -> Iterable[dict[str, Any]]:
    """Blocks that were not all day on two servers."""
    for row in BlockDay.objects.filter(model=model, day=day).order_by("block"):
        trouble = {name: spans(getattr(row, name)) for name in ("missing", "thin", "unread")}
        yield {"type": "block_day", **_of(model), "block": row.block, **trouble}


def _servers(model: WatchedModel, day: date) -> Iterable[dict[str, Any]]:
    hidden = hidden_list()
    rows = PeerDay.objects.filter(model=model, day=day).select_related("peer")
    shown = sorted(((hidden.shown(row.peer.peer_id), row) for row in rows), key=lambda item: item[0])
    for peer_id, row in shown:
        yield {
            "type": "server_day",
            **_of(model),
            "peer_id": peer_id,
            "first_minute": row.first_minute,
            "up": spans(row.up),
            "not_checked": spans(row.unknown),
            "throughput_tokens_per_second": row.throughput,
            "cache_tokens_left_per_block": row.cache_mean,
            "least_cache_tokens_left_per_block": row.cache_least,
        }


def _incidents(swarm: str, day: date) -> Iterable[dict[str, Any]]:
    """Those that were open on this day, as they were told at its end; the page of each says how it went on."""
    start, end = midnight(day), midnight(day) + timedelta(days=1)
    rows = confirmed(swarm).filter(Q(ended_before__isnull=True) | Q(ended_before__gte=start), confirmed_at__lt=end)
    for row in rows.order_by("id"):
        if row.ended_before is not None and row.ended_before >= end:
            row.ended_before, row.restored = None, []
        yield {"type": "incident", **incident_document(row)}


def _of(model: WatchedModel) -> dict[str, Any]:
    return {"swarm": model.swarm, "model": model.prefix}
