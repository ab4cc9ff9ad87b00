"""What holds now of the staff's rulings, as the monitor asks for it. One query whatever is ruled; nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from coordinator.desk.models import IncidentNote, Kind, Ruling
from monitor.rulings import Maintenance, Note, Rulings


class StaffOfThisSite:
    """`monitor.rulings.Staff`."""

    def rulings(self, swarm: str, at: float) -> Rulings:
        rows = Ruling.objects.at(_moment(at)).of_swarm(swarm).exclude(kind=Kind.BANNER)
        return in_force(rows.order_by("pk"))

    def maintenance(self, swarm: str, since: float, until: float) -> tuple[Maintenance, ...]:
        windows = Ruling.objects.filter(kind=Kind.MAINTENANCE).of_swarm(swarm).between(_moment(since), _moment(until))
        return tuple(_window(row) for row in windows.order_by("starts_at", "pk"))

    def notes(self, incident_id: int) -> tuple[Note, ...]:
        rows = IncidentNote.objects.filter(incident_id=incident_id).order_by("made_at", "pk")
        return tuple(Note(row.made_at.timestamp(), row.words) for row in rows)


def in_force(rows: Iterable[Ruling]) -> Rulings:
    kept = list(rows)
    return Rulings(
        quarantined={row.subject: why_quarantined(row) for row in kept if row.kind == Kind.QUARANTINE},
        maintenance=tuple(_window(row) for row in kept if row.kind == Kind.MAINTENANCE),
    )


def banners(at: float) -> list[str]:
    return list(
        Ruling.objects.at(_moment(at)).filter(kind=Kind.BANNER).order_by("starts_at", "pk").values_list("words", flat=True)
    )


def why_quarantined(row: Ruling) -> str:
    return f"{row.words.rstrip('.')}; until {row.ends_at.astimezone(UTC):%-d %b %H:%M} UTC"


def _window(row: Ruling) -> Maintenance:
    return Maintenance(row.subject, row.starts_at.timestamp(), row.ends_at.timestamp(), row.words)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
