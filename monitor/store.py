"""A crawl's report -> Postgres, in one transaction. The only writer: readers see all of a crawl or nothing of it.

A crawl that failed, or that is held back, adds one row and touches nothing else. A server whose record is gone becomes
`gone`; one whose record could not be read is `not checked`, since what was not read says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from django.db import connection, transaction

from monitor.archive import archived
from monitor.crawl import CrawlReport
from monitor.history.record import record
from monitor.models import (
    KEPT_FOR,
    SNAPSHOTS_KEPT_FOR,
    Crawl,
    CrawlOutcome,
    CrawlQuerySet,
    KeptSnapshot,
    ServerRow,
    WatchedModel,
)
from monitor.privacy import without_addresses
from monitor.published import beliefs_by, figures_of
from monitor.rates import doubts
from monitor.rates.evidence import seen_of
from monitor.rows import record_to_json
from monitor.rulings import staff
from swarm.coverage import coverage
from swarm.snapshot import MAX_RECORD_LIFE_S, Model, PeerState, Server, Snapshot
from swarm.throughput import Evidence
from swarm.wire.spans import Span
from swarm.wire.text import clean_text

DROPPED_KEPT = 200
"""Dropped records listed in full; all are counted. Enough to find who writes them, small enough for a flood."""

MAX_DETAIL = 300

_SERVER_COLUMNS = [field.name for field in ServerRow._meta.concrete_fields if field.name not in ("id", "model", "peer_id")]
_MODEL_COLUMNS = [f.name for f in WatchedModel._meta.concrete_fields if f.name not in ("id", "swarm", "prefix")]


def store(report: CrawlReport) -> Crawl:
    ruled, rates = None, {}
    with transaction.atomic():
        _one_writer(report.swarm)
        crawl = _store_crawl(report)
        if report.snapshot is not None and not report.held:
            ruled = staff().rulings(report.swarm, report.snapshot.at).applied(report.snapshot)
            told = seen_of(report.swarm, _moment(report.snapshot.at))
            ruled = doubts.applied(ruled, told.answers)
            ages = _store_snapshot(report.snapshot, ruled, report.indexed)
            rates = _believed(ruled, told.evidence, ages)
            KeptSnapshot.objects.create(crawl=crawl, document=archived(report.snapshot, crawl.pk))
        # Before the crawl before is forgotten: it may be old, where the monitor was off for long.
        record(crawl, ruled, rates)
        _forget_old(report.swarm, _moment(report.finished_at))
    return crawl


def store_in_turn(report: CrawlReport, since: int) -> Crawl | None:
    """As `store`; None, and nothing is stored, where another worker's crawl has been stored meanwhile that saw the swarm later.
    `since` is the newest crawl that there was when this one began, 0 for none: only what came after it ran beside this one, and
    only that can be newer. What was there before and bears a later time was seen before the clock was set back."""
    with transaction.atomic():
        _one_writer(report.swarm)
        return None if _overtaken(report, Crawl.objects.of(report.swarm).filter(pk__gt=since)) else store(report)


def _overtaken(report: CrawlReport, beside: CrawlQuerySet) -> bool:
    seen, begun = beside.newest_success(), beside.newest()
    if report.snapshot is not None and seen is not None and seen.observed_at is not None:
        older = seen.observed_at >= _moment(report.snapshot.at)
    else:
        older = False
    in_vain = report.snapshot is None or bool(report.held)
    return older or (in_vain and begun is not None and begun.started_at >= _moment(report.started_at))


def _one_writer(swarm: str) -> None:
    """Waits for any other crawl of this swarm that is being stored, until this transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"monitor.store {swarm}"])


def _store_crawl(report: CrawlReport) -> Crawl:
    dropped = report.snapshot.dropped if report.snapshot else ()
    published = report.snapshot if not report.held else None
    outcome = CrawlOutcome.HELD if report.held else CrawlOutcome.SUCCEEDED if published else CrawlOutcome.FAILED
    return Crawl.objects.create(
        swarm=report.swarm,
        # A clock that is set back during a crawl makes it end before it began.
        started_at=_moment(min(report.started_at, report.finished_at)),
        finished_at=_moment(report.finished_at),
        observed_at=_moment(published.at) if published else None,
        outcome=outcome,
        reason=_printable(report.held or report.failure),
        suspicion=report.suspicion,
        lost=sorted(map(list, report.lost)),
        confirmed=_printable(report.confirmed),
        bootstraps=dict(report.bootstraps),
        addresses=[{**asdict(state), "detail": _printable(state.detail)} for state in report.addresses],
        split=_printable(report.split),
        keys_unread=report.keys_unread,
        dropped_counts=dict(Counter(record.reason for record in dropped)),
        dropped=[{name: _printable(text) for name, text in asdict(record).items()} for record in dropped[:DROPPED_KEPT]],
    )


def _believed(
    ruled: Snapshot, evidence: Mapping[tuple[str, str], Evidence], ages: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Tokens per second by prefix and peer id, as pages would show them at the time of the snapshot."""
    return {model.prefix: figures_of(beliefs_by(evidence, ages[model.prefix], model)) for model in ruled.models}


def _store_snapshot(snapshot: Snapshot, ruled: Snapshot, indexed: frozenset[str]) -> dict[str, dict[str, float]]:
    """Servers as they are; verdicts as the site's staff has ruled and answers have it: both end, and what was seen stays.
    For how long each server is here without a break, in seconds by prefix and peer id."""
    at = _moment(snapshot.at)
    stored = {row.prefix: row for row in WatchedModel.objects.of(snapshot.swarm)}
    WatchedModel.objects.bulk_create(
        [_model_row(snapshot.swarm, model, stored.get(model.prefix), indexed, at) for model in ruled.models],
        update_conflicts=True,
        unique_fields=["swarm", "prefix"],
        update_fields=_MODEL_COLUMNS,
    )
    rows = {row.prefix: row for row in WatchedModel.objects.of(snapshot.swarm)}
    before = {(row.model_id, row.peer_id): row for row in ServerRow.objects.filter(model__swarm=snapshot.swarm)}
    present = [
        _server_row(rows[model.prefix], server, before.get((rows[model.prefix].pk, server.peer_id)), snapshot.at)
        for model in snapshot.models
        for server in model.servers
    ]
    here = {(row.model_id, row.peer_id) for row in present}
    unread = {rows[model.prefix].pk: model.unread_blocks for model in snapshot.models}
    missed = [_missed(row, unread.get(row.model_id, frozenset()), at) for key, row in before.items() if key not in here]
    ServerRow.objects.bulk_create(
        [*present, *(row for row in missed if row is not None)],
        update_conflicts=True,
        unique_fields=["model", "peer_id"],
        update_fields=_SERVER_COLUMNS,
    )
    ages: dict[str, dict[str, float]] = {model.prefix: {} for model in snapshot.models}
    for row in present:
        ages[row.model.prefix][row.peer_id] = (at - row.here_since).total_seconds()
    return ages


def _model_row(swarm: str, model: Model, before: WatchedModel | None, indexed: frozenset[str], at: datetime) -> WatchedModel:
    verdict = coverage(model).verdict
    announced = model.prefix in indexed or bool(model.servers) or before is None
    served = any(server.state is PeerState.ONLINE for server in model.servers)
    return WatchedModel(
        swarm=swarm,
        prefix=model.prefix,
        num_blocks=model.num_blocks,
        repository=model.repository,
        unread_blocks=sorted(model.unread_blocks),
        announced_at=at if announced or before is None else _since(before.announced_at, at),
        observed_at=at,
        served_at=at if served else before.served_at if before is not None else None,
        verdict=verdict.value,
        verdict_since=_since(before.verdict_since if before is not None and before.verdict == verdict else None, at),
        conflict=_printable(model.conflict),
        at_least=model.at_least,
    )


def _server_row(model: WatchedModel, server: Server, before: ServerRow | None, at: float) -> ServerRow:
    visit = server.visit
    return ServerRow(
        model=model,
        peer_id=server.peer_id,
        start=server.span.start,
        end=server.span.end,
        state=server.state.value,
        state_since=_since(before.state_since if before is not None and before.state == server.state else None, _moment(at)),
        first_seen=_since(before.first_seen if before is not None else None, _moment(at)),
        here_since=_since(before.here_since if before is not None and before.state != PeerState.GONE else None, _moment(at)),
        last_seen=_last_seen(server, before, at),
        observed_at=_moment(at),
        expires_at=_moment(server.expires_at),
        announced=record_to_json(server.record),
        visited_at=_moment(visit.at) if visit else None,
        visit_outcome=visit.outcome.value if visit else "",
        visit_detail=_printable(visit.detail) if visit else "",
        round_trip_s=visit.round_trip_s if visit else None,
        visit_version=visit.version if visit else None,
        visit_cache_tokens_left=visit.cache_tokens_left if visit else None,
        visit_start=visit.span.start if visit and visit.span else None,
        visit_end=visit.span.end if visit and visit.span else None,
        visit_addresses=[without_addresses(address) for address in visit.addresses] if visit else [],
        visit_via=visit.via if visit else "",
        visit_network=visit.network if visit else "",
        conflict=_printable(server.conflict),
        borne_out=_borne_out(server, before),
        skew_s=server.skew_s,
    )


def _borne_out(server: Server, before: ServerRow | None) -> int | None:
    """Also where it has moved since, or does not answer any more."""
    known = before.borne_out if before is not None else None
    if server.visit is None or not server.visit.answered:
        return known
    return max(known or 0, (server.visit.span or server.span).end)


def _last_seen(server: Server, before: ServerRow | None, at: float) -> datetime:
    """A sign of life is an answer or a renewed announcement. An old record that still lies in the DHT is none."""
    if server.visit is not None and server.visit.answered:
        return _moment(server.visit.at)
    # A capped expiry moves with every crawl, and so proves nothing.
    capped = server.expires_at >= at + MAX_RECORD_LIFE_S
    if before is None or (_moment(server.expires_at) > before.expires_at and not capped):
        return _moment(at)
    return _since(before.last_seen, _moment(at))


def _missed(row: ServerRow, unread_blocks: frozenset[int], at: datetime) -> ServerRow | None:
    """The row of a server that the snapshot does not have, changed; None where there is nothing to change."""
    unread = any(block in unread_blocks for block in Span(row.start, row.end))
    state = PeerState.NOT_CHECKED.value if unread else PeerState.GONE.value
    same = row.state == state or (unread and row.state == PeerState.GONE)
    if same and row.state_since <= at:
        return None
    # Also of who left by a clock that was ahead, and would be listed until that time comes.
    row.state, row.state_since = row.state if same else state, at
    return row


def _forget_old(swarm: str, now: datetime) -> None:
    """Old rows make room. The newest success stays however old it is: it is all that a blind monitor has to show."""
    crawls = Crawl.objects.of(swarm)
    if not crawls.bear_out(now):
        return
    newest = crawls.newest_success()
    old = crawls.filter(started_at__lt=now - KEPT_FOR)
    (old if newest is None else old.exclude(pk=newest.pk)).delete()
    KeptSnapshot.objects.filter(crawl__swarm=swarm, crawl__started_at__lt=now - SNAPSHOTS_KEPT_FOR).delete()
    ServerRow.objects.filter(model__swarm=swarm, state=PeerState.GONE.value, state_since__lt=now - KEPT_FOR).delete()


def _since(begun: datetime | None, at: datetime) -> datetime:
    """Nothing began later than now, whatever a clock that was set back since has written."""
    return at if begun is None else min(begun, at)


def _printable(detail: str) -> str:
    return clean_text(without_addresses(detail), MAX_DETAIL) or ""


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
