"""Incidents between their table and the rules: reads what is open, asks the rules, writes what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet
from django.db.models.query import ModelIterable

from monitor.hiding.models import hidden_list
from monitor.hiding.rules import HiddenList
from monitor.history.earlier import earlier_servers
from monitor.history.minutes import moment
from monitor.history.models import Incident
from monitor.history.rules import (
    Bounds,
    Changes,
    Departure,
    Ended,
    How,
    Kind,
    Look,
    Ongoing,
    Seen,
    advance,
    advance_blindness,
)
from monitor.models import WatchedModel
from monitor.privacy import without_addresses
from swarm.coverage import coverage
from swarm.snapshot import Model, Server, Snapshot
from swarm.wire.text import clean_text

MAX_REASON = 300
BATCH = 500
"""Incidents in one statement."""
NO_MORE = "The swarm no longer announces this model"

_INCIDENT_COLUMNS = [column.name for column in Incident._meta.concrete_fields if column.name != "id"]

if TYPE_CHECKING:
    _Rows = ModelIterable[Incident]
else:
    _Rows = ModelIterable


class _Shown(_Rows):
    """Rows without the ids of hidden peers, so that no page and no feed has to think of it."""

    def __iter__(self) -> Iterator[Incident]:
        rows = list(super().__iter__())
        hidden = hidden_list() if rows else HiddenList()
        for row in rows:
            row.left, row.restored = hidden.scrubbed(row.left), hidden.scrubbed(row.restored)
            yield row


def confirmed(swarm: str) -> QuerySet[Incident]:
    """What people are shown, newest first. To be read, and not to be saved."""
    rows = Incident.objects.filter(swarm=swarm, confirmed_at__isnull=False).select_related("model").order_by("-id")
    rows._iterable_class = _Shown
    return rows


def advance_models(snapshot: Snapshot, rows: dict[str, WatchedModel], last: float | None, blind_after_s: float) -> None:
    """Before the samples of this crawl are written: those of the crawl before say who was there.

    A model that was never served has lost nothing: anyone may name any number of them in the index."""
    still_open: dict[int, dict[Kind, Incident]] = {}
    unended = Incident.objects.filter(model__in=rows.values(), ended_before__isnull=True).select_for_update()
    for row in unended:
        still_open.setdefault(row.model_id or 0, {})[Kind(row.kind)] = row
    concerned = {
        rows[model.prefix].pk: model
        for model in snapshot.models
        if rows[model.prefix].pk in still_open or (rows[model.prefix].served_at is not None and _in_trouble(model))
    }
    earlier = earlier_servers(concerned, last)
    writes = _Writes()
    for pk, model in concerned.items():
        known = still_open.get(pk, {})
        seen = _seen(model, earlier.get(pk), snapshot.at, last, blind_after_s)
        changes = advance([_ongoing(row) for row in known.values()], seen)
        writes.add(snapshot.swarm, pk, known, changes)
    _let_go(snapshot, rows, writes)
    writes.make()


def _let_go(snapshot: Snapshot, rows: dict[str, WatchedModel], writes: _Writes) -> None:
    """A model that the swarm announces no more is watched no more: its incidents are over, and nobody restored it."""
    others = Incident.objects.filter(swarm=snapshot.swarm, model__isnull=False, ended_before__isnull=True)
    for row in others.exclude(model__in=rows.values()):
        if row.confirmed_at is None:
            writes.gone.append(row.pk)
            continue
        row.ended_before, row.current, row.reason = max(moment(snapshot.at), row.bad_at), {}, NO_MORE
        writes.rows.append(row)


def look(swarm: str, looked: Look, why: str = "") -> None:
    unended = Incident.objects.filter(swarm=swarm, kind=Kind.BLIND, ended_before__isnull=True).select_for_update()
    known = {Kind(row.kind): row for row in unended}
    ongoing = [_ongoing(row) for row in known.values()]
    changes = advance_blindness(ongoing[0] if ongoing else None, looked)
    writes = _Writes()
    writes.add(swarm, None, known, changes, clean_text(without_addresses(why), MAX_REASON) or "")
    writes.make()


def _in_trouble(model: Model) -> bool:
    covered = coverage(model)
    return bool(covered.holes or covered.thin)


def _seen(
    model: Model, earlier: tuple[tuple[Server, ...], float] | None, at: float, last: float | None, blind_after_s: float
) -> Seen:
    servers, minute = earlier if earlier is not None else ((), None)
    # The samples know the minute, the crawl the second; they differ where the crawl before had not this model.
    earlier_at = last if minute is not None and last is not None and 0 <= last - minute < 60 else minute
    return Seen(model, at, servers, earlier_at if earlier_at is not None and earlier_at < at else None, blind_after_s)


@dataclass
class _Writes:
    """What is to be written of all models at once: a flood of them must not cost a query each."""

    rows: list[Incident] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def add(self, swarm: str, model_id: int | None, known: dict[Kind, Incident], changes: Changes, why: str = "") -> None:
        kept = {item.kind for item in changes.open} | {ended.incident.kind for ended in changes.ended}
        self.gone += [row.pk for kind, row in known.items() if kind not in kept]
        for item in changes.open:
            row = known.get(item.kind) or Incident(swarm=swarm, model_id=model_id, kind=item.kind)
            _write(row, item)
            row.reason = why or row.reason
            self.rows.append(row)
        for ended in changes.ended:
            kind = ended.incident.kind
            self.rows.append(_closed(known.get(kind) or Incident(swarm=swarm, model_id=model_id, kind=kind), ended))

    def make(self) -> None:
        if self.gone:
            Incident.objects.filter(pk__in=self.gone).delete()
        Incident.objects.bulk_create(
            self.rows, BATCH, update_conflicts=True, unique_fields=["id"], update_fields=_INCIDENT_COLUMNS
        )


def _closed(row: Incident, ended: Ended) -> Incident:
    _write(row, ended.incident)
    row.ended_before = max(moment(ended.at), row.bad_at)
    row.restored = [asdict(arrival) for arrival in ended.restored]
    return row


def _write(row: Incident, item: Ongoing) -> None:
    row.started_after = moment(item.start.after) if item.start.after is not None else None
    row.started_before = moment(item.start.before)
    row.confirmed_at = moment(item.confirmed_at) if item.confirmed_at is not None else None
    # Never before it began, also where the clock was set back meanwhile.
    row.bad_at = max(moment(item.bad_at), row.started_before)
    row.blocks = sorted(item.blocks)
    row.current = {str(block): [bounds.after, bounds.before] for block, bounds in item.current.items()}
    row.left = [{**asdict(departure), "how": departure.how.value} for departure in item.left]


def _ongoing(row: Incident) -> Ongoing:
    return Ongoing(
        kind=Kind(row.kind),
        start=Bounds(row.started_after.timestamp() if row.started_after else None, row.started_before.timestamp()),
        bad_at=row.bad_at.timestamp(),
        confirmed_at=row.confirmed_at.timestamp() if row.confirmed_at else None,
        blocks=frozenset(row.blocks),
        current={int(block): Bounds(after, before) for block, (after, before) in row.current.items()},
        left=tuple(_departure(entry) for entry in row.left),
    )


def _departure(entry: dict[str, Any]) -> Departure:
    return Departure(entry["peer_id"], How(entry["how"]), entry["at"], entry["blocks"])


def overlapping(swarm: str, since: float) -> QuerySet[Incident]:
    return confirmed(swarm).filter(Q(ended_before__isnull=True) | Q(ended_before__gte=moment(since)))
