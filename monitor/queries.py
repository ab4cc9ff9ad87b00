"""Postgres -> Snapshot and what belongs to it. The only reader: a fixed number of queries, whatever the size of the swarm."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

from django.conf import settings
from django.db import transaction

from monitor.gate import Held, Suspicion
from monitor.models import Crawl, CrawlOutcome, ServerRow, WatchedModel
from monitor.published import CrawlFacts, Published, Sighting, Watch
from monitor.rates.evidence import seen_of
from monitor.rows import record_from_json
from monitor.torn import unless_newer, whole
from swarm.snapshot import MAX_RECORD_LIFE_S, AddressState, Dropped, Model, Outcome, PeerState, Server, Snapshot, Visit
from swarm.wire.records import ModelRecord, ServerState
from swarm.wire.spans import Span


def latest_snapshot(swarm: str, now: float | None = None) -> Published | None:
    """The last snapshot; None where no crawl ever succeeded."""
    return watch(swarm, now).published


@whole
def watch(swarm: str, now: float | None = None) -> Watch:
    """Everything that is shown of a swarm, as of one instant of the database."""
    read_at = time.time() if now is None else now
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    with transaction.atomic():
        crawls = Crawl.objects.of(swarm)
        last, success = crawls.newest(), crawls.newest_success()
        held, failing_since = "", None
        if last is not None and last != success:
            vain = crawls.without_result_after(success.started_at if success else None)
            first = vain.order_by("started_at", "pk").first()
            failing_since = first.started_at.timestamp() if first else None
            doubted = last if last.outcome == CrawlOutcome.HELD else vain.filter(outcome=CrawlOutcome.HELD).newest()
            held = doubted.reason if doubted else ""
        failure = last.reason if last and last.outcome == CrawlOutcome.FAILED else ""
        published = _published(success, read_at, interval_s, failure, held) if success else None
    return Watch(
        swarm=swarm,
        read_at=read_at,
        interval_s=interval_s,
        published=published,
        last_crawl=_facts(last) if last else None,
        failing_since=failing_since,
    )


def known_models(swarm: str, now: float) -> dict[str, ModelRecord]:
    """Models that were announced lately, to be looked for even where the index has lost them."""
    remembered = WatchedModel.objects.of(swarm).remembered(datetime.fromtimestamp(now, UTC))
    return {row.prefix: ModelRecord(row.num_blocks, row.repository) for row in remembered}


def remembered(swarm: str, now: float) -> Snapshot | None:
    """The last snapshot, with those servers that have vanished from it lately without a word: they may still answer."""
    published = latest_snapshot(swarm, now)
    if published is None:
        return None
    models = tuple(
        replace(
            model,
            servers=(*model.servers, *(s for s in published.absent.get(model.prefix, ()) if _may_answer(published, model, s))),
        )
        for model in published.snapshot.models
    )
    return replace(published.snapshot, models=models)


def held_back(swarm: str) -> Held | None:
    """The newest crawl since the last published one that was not believed."""
    crawls = Crawl.objects.of(swarm)
    success = crawls.newest_success()
    doubted = crawls.without_result_after(success.started_at if success else None).filter(outcome=CrawlOutcome.HELD).newest()
    if doubted is None:
        return None
    lost = frozenset((prefix, peer_id) for prefix, peer_id in doubted.lost)
    return Held(doubted.started_at.timestamp(), Suspicion(doubted.suspicion), lost)


def _may_answer(published: Published, model: Model, server: Server) -> bool:
    sighting = published.sightings.get((model.prefix, server.peer_id))
    left = server.state is PeerState.GONE and server.record.state is ServerState.OFFLINE
    return not left and sighting is not None and published.read_at - sighting.last_seen <= MAX_RECORD_LIFE_S


def last_success_at(swarm: str) -> float | None:
    crawl = Crawl.objects.of(swarm).newest_success()
    return crawl.observed_at.timestamp() if crawl is not None and crawl.observed_at is not None else None


def _published(crawl: Crawl, read_at: float, interval_s: float, failure: str, held: str) -> Published:
    assert crawl.observed_at is not None  # a constraint of the table: a crawl that succeeded has its time
    # Sorted here and not by Postgres, whose order of letters depends on its collation.
    models = sorted(unless_newer(WatchedModel.objects.seen_since(crawl), crawl), key=lambda row: row.prefix)
    listed = ServerRow.objects.filter(model__in=models).listed(datetime.fromtimestamp(read_at, UTC))
    present: dict[int, list[Server]] = defaultdict(list)
    absent: dict[int, list[Server]] = defaultdict(list)
    sightings: dict[tuple[str, str], Sighting] = {}
    prefixes = {model.pk: model.prefix for model in models}
    for row in sorted(unless_newer(listed, crawl), key=lambda row: (row.start, row.end, row.peer_id)):
        (present if row.observed_at == crawl.observed_at else absent)[row.model_id].append(_server(row))
        sightings[prefixes[row.model_id], row.peer_id] = Sighting(
            row.state_since.timestamp(), row.first_seen.timestamp(), row.last_seen.timestamp()
        )
    rates = seen_of(crawl.swarm, datetime.fromtimestamp(read_at, UTC))
    snapshot = Snapshot(
        swarm=crawl.swarm,
        at=crawl.observed_at.timestamp(),
        models=tuple(_model(row, present[row.pk]) for row in models),
        dropped=tuple(Dropped(**record) for record in crawl.dropped),
    )
    return Published(
        snapshot=snapshot,
        crawl=_facts(crawl),
        read_at=read_at,
        interval_s=interval_s,
        crawl_failure=failure,
        absent={row.prefix: tuple(absent[row.pk]) for row in models},
        sightings=sightings,
        verdict_since={row.prefix: row.verdict_since.timestamp() for row in models},
        held=held,
        evidence=rates.evidence,
        told=rates.told,
        canaries=rates.canaries,
    )


def _facts(crawl: Crawl) -> CrawlFacts:
    return CrawlFacts(
        started_at=crawl.started_at.timestamp(),
        finished_at=crawl.finished_at.timestamp(),
        failure=crawl.reason if crawl.outcome == CrawlOutcome.FAILED else "",
        bootstraps=crawl.bootstraps,
        keys_unread=crawl.keys_unread,
        dropped=crawl.dropped_counts,
        held=crawl.reason if crawl.outcome == CrawlOutcome.HELD else "",
        confirmed=crawl.confirmed,
        addresses=tuple(AddressState(**state) for state in crawl.addresses),
        split=crawl.split,
    )


def _model(row: WatchedModel, servers: list[Server]) -> Model:
    return Model(row.prefix, row.num_blocks, row.repository, tuple(servers), frozenset(row.unread_blocks), row.conflict)


def _server(row: ServerRow) -> Server:
    return Server(
        peer_id=row.peer_id,
        span=Span(row.start, row.end),
        state=PeerState(row.state),
        record=record_from_json(row.announced),
        expires_at=row.expires_at.timestamp(),
        visit=_visit(row),
        conflict=row.conflict,
        skew_s=row.skew_s,
    )


def _visit(row: ServerRow) -> Visit | None:
    if row.visited_at is None:
        return None
    return Visit(
        peer_id=row.peer_id,
        at=row.visited_at.timestamp(),
        outcome=Outcome(row.visit_outcome),
        detail=row.visit_detail,
        round_trip_s=row.round_trip_s,
        version=row.visit_version,
        cache_tokens_left=row.visit_cache_tokens_left,
        span=Span(row.visit_start, row.visit_end) if row.visit_start is not None and row.visit_end is not None else None,
        addresses=tuple(row.visit_addresses),
        via=row.visit_via,
        network=row.visit_network,
    )
