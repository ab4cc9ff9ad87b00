"""Postgres -> Snapshot and what belongs to it. The only reader: a fixed number of queries, whatever the size of the swarm."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime

from django.conf import settings
from django.db import transaction

from monitor.models import Crawl, ServerRow, WatchedModel
from monitor.published import CrawlFacts, Published, Sighting, Watch
from monitor.rows import record_from_json
from swarm.snapshot import Dropped, Model, Outcome, PeerState, Server, Snapshot, Visit
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span


def latest_snapshot(swarm: str, now: float | None = None) -> Published | None:
    """The last snapshot; None where no crawl ever succeeded."""
    return watch(swarm, now).published


def watch(swarm: str, now: float | None = None) -> Watch:
    """Everything that is shown of a swarm, as of one instant of the database."""
    read_at = time.time() if now is None else now
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    with transaction.atomic():
        crawls = Crawl.objects.of(swarm)
        last, success = crawls.newest(), crawls.newest_success()
        failed = last is not None and last != success
        first_failure = crawls.first_failure_after(success.started_at if success else None) if failed else None
        published = _published(success, read_at, interval_s, last.reason if last and failed else "") if success else None
    return Watch(
        swarm=swarm,
        read_at=read_at,
        interval_s=interval_s,
        published=published,
        last_crawl=_facts(last) if last else None,
        failing_since=first_failure.started_at.timestamp() if first_failure else None,
    )


def known_models(swarm: str, now: float) -> dict[str, ModelRecord]:
    """Models that were announced lately, to be looked for even where the index has lost them."""
    remembered = WatchedModel.objects.of(swarm).remembered(datetime.fromtimestamp(now, UTC))
    return {row.prefix: ModelRecord(row.num_blocks, row.repository) for row in remembered}


def last_success_at(swarm: str) -> float | None:
    crawl = Crawl.objects.of(swarm).newest_success()
    return crawl.observed_at.timestamp() if crawl is not None and crawl.observed_at is not None else None


def _published(crawl: Crawl, read_at: float, interval_s: float, failure: str) -> Published:
    assert crawl.observed_at is not None  # a constraint of the table: a crawl that succeeded has its time
    # Sorted here and not by Postgres, whose order of letters depends on its collation.
    models = sorted(WatchedModel.objects.observed_in(crawl), key=lambda row: row.prefix)
    listed = ServerRow.objects.filter(model__in=models).listed(datetime.fromtimestamp(read_at, UTC))
    present: dict[int, list[Server]] = defaultdict(list)
    absent: dict[int, list[Server]] = defaultdict(list)
    sightings: dict[tuple[str, str], Sighting] = {}
    prefixes = {model.pk: model.prefix for model in models}
    for row in sorted(listed, key=lambda row: (row.start, row.end, row.peer_id)):
        (present if row.observed_at == crawl.observed_at else absent)[row.model_id].append(_server(row))
        sightings[prefixes[row.model_id], row.peer_id] = Sighting(
            row.state_since.timestamp(), row.first_seen.timestamp(), row.last_seen.timestamp()
        )
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
    )


def _facts(crawl: Crawl) -> CrawlFacts:
    return CrawlFacts(
        started_at=crawl.started_at.timestamp(),
        finished_at=crawl.finished_at.timestamp(),
        failure=crawl.reason,
        bootstraps=crawl.bootstraps,
        keys_unread=crawl.keys_unread,
        dropped=crawl.dropped_counts,
    )


def _model(row: WatchedModel, servers: list[Server]) -> Model:
    return Model(row.prefix, row.num_blocks, row.repository, tuple(servers), frozenset(row.unread_blocks))


def _server(row: ServerRow) -> Server:
    return Server(
        peer_id=row.peer_id,
        span=Span(row.start, row.end),
        state=PeerState(row.state),
        record=record_from_json(row.announced),
        expires_at=row.expires_at.timestamp(),
        visit=_visit(row),
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
    )
