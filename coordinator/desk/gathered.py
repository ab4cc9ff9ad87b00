"""What the board rests on, read from Postgres: a fixed number of queries a swarm. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from coordinator.desk.board import Known, Promised, Row, next_risk, rows
from coordinator.models import Lease
from monitor.history.models import Incident, ModelMinute
from monitor.history.rules import Kind
from monitor.models import WatchedModel
from monitor.notices import notices
from monitor.published import Watch
from monitor.queries import watch_everyone
from monitor.swarms import WatchedSwarm, configured
from swarm.snapshot import Model

LOOKED_BACK = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class SwarmBoard:
    """`doubts` say why what stands here may not be so; then nothing is claimed to need no action."""

    swarm: WatchedSwarm
    rows: tuple[Row, ...]
    doubts: tuple[str, ...]
    models: int
    next_risk: str


def boards(now: float) -> list[SwarmBoard]:
    return [_board(swarm, watch_everyone(swarm.name, now)) for swarm in configured()]


def _board(swarm: WatchedSwarm, seen: Watch) -> SwarmBoard:
    models = seen.published.snapshot.models if seen.published else ()
    known = _known(swarm.name, models, seen.read_at)
    found = tuple(row for model in models for row in rows(swarm.name, model, known[model.prefix]))
    doubts = () if seen.sees else tuple(notice.words for notice in notices(seen) if notice.kind == "warning")
    if not seen.sees and not doubts:
        doubts = ("This swarm has not been seen yet.",)
    return SwarmBoard(swarm, found, doubts, len(models), next_risk(models) if models else "")


def _known(swarm: str, models: Iterable[Model], now: float) -> dict[str, Known]:
    prefixes = [model.prefix for model in models]
    promised: dict[str, list[Promised]] = defaultdict(list)
    for lease in Lease.objects.filter(swarm=swarm, prefix__in=prefixes).open().defer("inputs").order_by("created_at"):
        promised[lease.prefix].append(Promised(str(lease.pk), lease.peer_id, lease.span, lease.phase, lease.origin_prefix))
    lows, since = _lows(swarm, now), _since(swarm)
    return {p: Known(tuple(promised[p]), lows.get(p), since.get(p, {})) for p in prefixes}


def _lows(swarm: str, now: float) -> dict[str, dict[int, int]]:
    """By prefix the least redundancy that each block had, where it was 0 or 1. A model without a watched minute is left out."""
    since = datetime.fromtimestamp(now, UTC) - LOOKED_BACK
    watched = {row.pk: row.prefix for row in WatchedModel.objects.of(swarm)}
    found: dict[str, dict[int, int]] = {}
    minutes = ModelMinute.objects.filter(model_id__in=watched, ts__gte=since)
    # The same few patterns repeat through the day.
    for model_id, missing, thin in minutes.values_list("model_id", "missing", "thin").distinct():
        lows = found.setdefault(watched[model_id], {})
        lows.update({block: 0 for span in missing for block in span})
        lows.update({block: 1 for span in thin for block in span if lows.get(block) != 0})
    return found


def _since(swarm: str) -> dict[str, dict[int, float]]:
    """When the trouble of each block was first seen: that of a hole where it is one."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    troubled = Incident.objects.filter(swarm=swarm, ended_before__isnull=True, model__isnull=False).select_related("model")
    for incident in sorted(troubled, key=lambda row: row.kind == Kind.HOLE):
        assert incident.model is not None  # as filtered
        found[incident.model.prefix].update({int(block): before for block, (_, before) in incident.current.items()})
    return found
