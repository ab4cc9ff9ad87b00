"""Incidents in words: one sentence, when it began and ended at the narrowest, who left and who came. Pure but for its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from monitor.history.models import Incident
from monitor.history.rules import How, Kind
from monitor.published import ago
from monitor.rulings import Maintenance, announced
from swarm.wire.spans import in_words, runs

SYMBOLS = {Kind.HOLE: "✕", Kind.THIN: "!", Kind.BLIND: "?"}
LEVELS = {Kind.HOLE: "broken", Kind.THIN: "thin", Kind.BLIND: "unknown"}
SEVERITY = {Kind.HOLE: "outage", Kind.THIN: "warning", Kind.BLIND: "not watched"}

LISTED = 6
"""Spans in a title; a swarm that falls apart has more than anyone reads."""


@dataclass(frozen=True, slots=True)
class Story:
    """One incident as a page shows it."""

    id: int
    kind: str
    severity: str
    symbol: str
    level: str
    prefix: str
    title: str
    is_open: bool
    started: str
    started_iso: str
    ended: str
    length: str
    explanation: str
    left: tuple[tuple[str, str, str, bool], ...]
    restored: tuple[tuple[str, str], ...]
    timeline: tuple[tuple[str, str, str], ...]
    maintenance: str = ""


def story(row: Incident, now: float, windows: Iterable[Maintenance] = ()) -> Story:
    """`windows`: announced maintenance, in which an outage is no surprise."""
    kind = Kind(row.kind)
    return Story(
        id=row.pk,
        kind=kind.value,
        severity=SEVERITY[kind],
        symbol=SYMBOLS[kind],
        level=LEVELS[kind],
        prefix=row.model.prefix if row.model else "",
        title=title(row),
        is_open=row.ended_before is None,
        started=started(row),
        started_iso=iso(row.started_before),
        ended=ended(row),
        length=length(row, now),
        explanation=explanation(row),
        left=tuple((e["peer_id"], e["how"], e["blocks"], e["how"] == How.NORMALLY.value) for e in row.left),
        restored=tuple((entry["peer_id"], entry["blocks"]) for entry in row.restored),
        timeline=_timeline(row),
        maintenance=maintenance(row, now, windows),
    )


def maintenance(row: Incident, now: float, windows: Iterable[Maintenance]) -> str:
    since = (row.started_after or row.started_before).timestamp()
    until = row.ended_before.timestamp() if row.ended_before else now
    window = announced(windows, row.model.prefix if row.model else "", since, until)
    return window.sentence.replace(" until ", ", announced until ", 1) if window else ""


def title(row: Incident) -> str:
    if row.kind == Kind.BLIND:
        return "The monitor did not see the swarm" if row.ended_before else "The monitor does not see the swarm"
    verb = "had" if row.ended_before else ("has" if len(row.blocks) == 1 else "have")
    lack = "no server" if row.kind == Kind.HOLE else "only one server"
    return f"{row.model.prefix if row.model else ''}: {_blocks(row)} {verb} {lack}"


def _blocks(row: Incident) -> str:
    spans = runs(row.blocks)
    return in_words(spans) if len(spans) <= LISTED else f"{len(row.blocks)} blocks from {spans[0].start} to {spans[-1].end - 1}"


def explanation(row: Incident) -> str:
    over, why = row.ended_before is not None, f" {row.reason}." if row.reason else ""
    if row.kind == Kind.BLIND:
        return f"This says nothing about the servers. No downtime is counted.{why}"
    if row.kind == Kind.HOLE:
        return f"The model {'could not' if over else 'cannot'} run.{why}"
    told = "ran, but the next crash would have stopped it" if over else "runs, but the next crash stops it"
    return f"The model {told}.{why}"


def started(row: Incident) -> str:
    if row.started_after is None:
        return f"before {clock(row.started_before)}, when we first looked"
    return between(row.started_after, row.started_before)


def ended(row: Incident) -> str:
    return between(row.bad_at, row.ended_before) if row.ended_before else ""


def between(after: datetime, before: datetime) -> str:
    """`between 14:01:30 and 14:02:00 UTC`, with the days where they differ."""
    same = after.astimezone(UTC).date() == before.astimezone(UTC).date()
    return f"between {clock(after, zone=not same)} and {clock(before, day=not same)}"


def clock(moment: datetime, *, day: bool = True, zone: bool = True) -> str:
    form = ("%-d %b %H:%M:%S" if day else "%H:%M:%S") + (" UTC" if zone else "")
    return moment.astimezone(UTC).strftime(form)


def length(row: Incident, now: float) -> str:
    """`25 s to 1 min`: what it was at least and at most."""
    end = row.ended_before.timestamp() if row.ended_before else now
    least = max(0.0, (row.bad_at.timestamp() if row.ended_before else end) - row.started_before.timestamp())
    most = end - (row.started_after or row.started_before).timestamp()
    short, long = ago(least), ago(most)
    return short if short == long else f"{short} to {long}"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _timeline(row: Incident) -> tuple[tuple[str, str, str], ...]:
    """(iso, clock, what), in order."""
    seen: list[tuple[datetime, str]] = []
    if row.started_after:
        seen.append((row.started_after, "All was well." if row.kind != Kind.BLIND else "Last saw the swarm."))
    seen.append((row.started_before, "First seen." if row.kind != Kind.BLIND else "The next look was due, and did not come."))
    for entry in row.left:
        at = datetime.fromtimestamp(entry["at"], UTC)
        seen.append((at, f"…{entry['peer_id'][-6:]} {entry['how']} ({entry['blocks']})."))
    if row.confirmed_at and row.kind != Kind.BLIND:
        seen.append((row.confirmed_at, "Confirmed." if row.kind == Kind.HOLE else "Half an hour with one server: a warning."))
    if row.ended_before:
        seen.append((row.ended_before, "Over." if row.kind != Kind.BLIND else "Saw the swarm again."))
    ordered = sorted(seen, key=lambda step: step[0])
    return tuple((iso(at), clock(at), what) for at, what in ordered)
