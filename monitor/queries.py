"""Postgres -> Snapshot and what belongs to it. The only reader: a fixed number of queries, whatever the size of the swarm."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.conf import settings
from django.db import transaction

from monitor.extensions import loading_of
from monitor.gate import SAW, Held, Suspicion
from monitor.hiding.models import hidden_list
from monitor.hiding.rules import HiddenList, redacted, server_of
from monitor.models import Crawl, CrawlOutcome, ServerRow, WatchedModel
from monitor.privacy import dropped_without_addresses, record_without_addresses, without_addresses
from monitor.published import CrawlFacts, Published, Sighting, Watch
from monitor.rates.doubts import held_against, shown
from monitor.rates.evidence import findings_of, seen_of
from monitor.rows import record_from_json
from monitor.rulings import NO_RULINGS, Rulings, staff
from monitor.sizes import Witnesses
from monitor.telling import heard
from monitor.torn import Torn, whole
from swarm.coverage import Verdict, coverage
from swarm.snapshot import (
    MAX_RECORD_LIFE_S,
    AddressState,
    Dropped,
    Model,
    Outcome,
    PeerState,
    Server,
    Snapshot,
    Visit,
    is_overdue,
    is_slow,
)
from swarm.wire.records import ModelRecord, ServerState
from swarm.wire.spans import Span


@dataclass(frozen=True, slots=True)
class Known:
    """One server of one model (told without its other servers) as it was last seen, with the model's number."""

    model_id: int
    model: Model
    server: Server
    sighting: Sighting


def latest_snapshot(swarm: str, now: float | None = None) -> Published | None:
    """The last snapshot with everyone in it, for those who reason on it and show it to nobody; None where no crawl ever
    succeeded."""
    return watch_everyone(swarm, now).published


def watch(swarm: str, now: float | None = None) -> Watch:
    """Everything that is shown of a swarm, as of one instant of the database, and as the site's staff has ruled: without those
    who are hidden."""
    hidden = hidden_list()
    everyone = watch_everyone(swarm, now)
    return replace(redacted(everyone, hidden), ruled=_digest(everyone.rulings, hidden))


@whole
def watch_everyone(swarm: str, now: float | None = None, obey: Rulings | None = None) -> Watch:
    """As `watch`, with those who are hidden from everyone: for what is told to nobody, or to who names them. `obey` are other
    rulings than those of now; then nobody's answers are held against him either."""
    read_at = time.time() if now is None else now
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    with transaction.atomic():
        rulings = staff().rulings(swarm, read_at) if obey is None else obey
        crawls = Crawl.objects.of(swarm)
        last, success = crawls.newest(), crawls.newest_success()
        held, failing_since = "", None
        if last is not None and last != success:
            vain = crawls.without_result_after(success)
            first = vain.order_by("pk").first()
            failing_since = first.started_at.timestamp() if first else None
            doubted = last if last.outcome == CrawlOutcome.HELD else vain.filter(outcome=CrawlOutcome.HELD).newest()
            held = doubted.reason if doubted else ""
        failure = last.reason if last and last.outcome == CrawlOutcome.FAILED else ""
        published = _published(success, read_at, interval_s, failure, held, rulings, obey is None) if success else None
        if success is not None and newest_success(swarm) != success.pk:
            raise Torn
    return Watch(
        swarm=swarm,
        read_at=read_at,
        interval_s=interval_s,
        published=published,
        last_crawl=_facts(last) if last else None,
        failing_since=failing_since,
        rulings=rulings,
        last_crawl_id=last.pk if last else 0,
        progress=None if success else heard(swarm, read_at),
    )


def ruled(swarm: str, now: float) -> str:
    """Changes with what the site's staff decides: the same swarm is to be shown differently from then on."""
    return _digest(staff().rulings(swarm, now), hidden_list())


def _digest(rulings: Rulings, hidden: HiddenList) -> str:
    told = (sorted(rulings.quarantined.items()), rulings.maintenance, sorted(hidden.names), sorted(hidden.peers.items()))
    return hashlib.blake2b(repr(told).encode(), digest_size=6).hexdigest()


def newest_crawls(swarm: str) -> tuple[int, int]:
    """The ids of the newest crawl that succeeded, and of the newest of all; 0 for none. Whoever has read `watch` since then
    would read the same again."""
    newest = Crawl.objects.of(swarm).order_by("-pk").values_list("pk", flat=True)
    return newest_success(swarm), newest.first() or 0


def newest_success(swarm: str) -> int:
    succeeded = Crawl.objects.of(swarm).filter(outcome=CrawlOutcome.SUCCEEDED)
    return succeeded.order_by("-pk").values_list("pk", flat=True).first() or 0


def servers_of(swarm: str, peer_id: str) -> list[Known]:
    """What may be told of one peer, for each model that it serves or served within the last week. Three queries."""
    hidden = hidden_list()
    if peer_id in hidden.peers:
        return []
    rows = ServerRow.objects.filter(model__swarm=swarm, peer_id=peer_id).select_related("model").order_by("model__prefix")
    answers = findings_of(swarm, datetime.now(UTC), peer_id)
    return [
        Known(
            row.model_id,
            _model(row.model, []),
            server_of(held_against(_server(row), answers.get((row.model.prefix, row.peer_id))), hidden),
            _sighting(row),
        )
        for row in rows
    ]


def known_models(swarm: str, now: float) -> dict[str, ModelRecord]:
    """Models that were announced lately, to be looked for even where the index has lost them."""
    remembered = WatchedModel.objects.of(swarm).remembered(datetime.fromtimestamp(now, UTC))
    return {row.prefix: ModelRecord(row.num_blocks, row.repository) for row in remembered}


def witnesses(swarm: str, now: float) -> Witnesses:
    """Whose answers prove how many blocks a model has, and what they have borne out. Three queries."""
    rulings, findings = staff().rulings(swarm, now), findings_of(swarm, datetime.fromtimestamp(now, UTC))
    borne_out: dict[str, dict[str, int]] = defaultdict(dict)
    rows = ServerRow.objects.filter(model__swarm=swarm, borne_out__isnull=False)
    for prefix, peer_id, blocks in rows.values_list("model__prefix", "peer_id", "borne_out"):
        assert blocks is not None  # the filter's word
        borne_out[prefix][peer_id] = blocks
    # Whatever blocks they were: who computes nothing on one span is no witness for another.
    wrong = frozenset(key for key, finding in findings.items() if finding.serves_nothing)
    return Witnesses(frozenset(rulings.quarantined), wrong, borne_out)


def remembered(swarm: str, now: float) -> Snapshot | None:
    """The last snapshot, with those servers that have vanished from it lately without a word, since they may still answer, and
    with the models that were ever served."""
    # As it is: a crawl needs no rulings, and must not forget what they hide.
    published = watch_everyone(swarm, now, NO_RULINGS).published
    if published is None:
        return None
    models = tuple(
        replace(
            model,
            servers=(*model.servers, *(s for s in published.absent.get(model.prefix, ()) if _may_answer(published, model, s))),
        )
        for model in published.snapshot.models
    )
    known = WatchedModel.objects.of(swarm).remembered(datetime.fromtimestamp(now, UTC))
    served = known.filter(served_at__isnull=False).order_by("pk").values_list("prefix", flat=True)
    return replace(published.snapshot, models=models, served=tuple(served))


def held_back(swarm: str) -> Held | None:
    """The newest crawl since the last published one that was not believed."""
    crawls = Crawl.objects.of(swarm)
    success = crawls.newest_success()
    vain = crawls.without_result_after(success).filter(outcome=CrawlOutcome.HELD)
    doubted = vain.newest()
    if doubted is None:
        return None
    lost = frozenset((prefix, peer_id) for prefix, peer_id in doubted.lost)
    saw = vain.filter(suspicion__in=[suspicion.value for suspicion in SAW]).order_by("pk").first()
    seeing_since = saw.started_at.timestamp() if saw is not None else None
    return Held(doubted.started_at.timestamp(), Suspicion(doubted.suspicion), lost, seeing_since)


def _may_answer(published: Published, model: Model, server: Server) -> bool:
    sighting = published.sightings.get((model.prefix, server.peer_id))
    left = server.state is PeerState.GONE and server.record.state is ServerState.OFFLINE
    return not left and sighting is not None and published.read_at - sighting.last_seen <= MAX_RECORD_LIFE_S


def last_success_at(swarm: str) -> float | None:
    crawl = Crawl.objects.of(swarm).newest_success()
    return crawl.observed_at.timestamp() if crawl is not None and crawl.observed_at is not None else None


def _published(
    crawl: Crawl, read_at: float, interval_s: float, failure: str, held: str, rulings: Rulings, judging: bool
) -> Published:
    assert crawl.observed_at is not None  # a constraint of the table: a crawl that succeeded has its time
    # Sorted here and not by Postgres, whose order of letters depends on its collation.
    models = sorted(WatchedModel.objects.observed_in(crawl), key=lambda row: row.prefix)
    listed = ServerRow.objects.filter(model__in=models).listed(datetime.fromtimestamp(read_at, UTC))
    present: dict[int, list[Server]] = defaultdict(list)
    absent: dict[int, list[Server]] = defaultdict(list)
    sightings: dict[tuple[str, str], Sighting] = {}
    prefixes = {model.pk: model.prefix for model in models}
    rates = seen_of(crawl.swarm, datetime.fromtimestamp(read_at, UTC))
    answers = rates.answers if judging else {}
    for row in sorted(listed, key=lambda row: (row.start, row.end, row.peer_id)):
        (present if row.observed_at == crawl.observed_at else absent)[row.model_id].append(rulings.obeyed(_server(row)))
        sightings[prefixes[row.model_id], row.peer_id] = _sighting(row)
    snapshot = Snapshot(
        swarm=crawl.swarm,
        at=crawl.observed_at.timestamp(),
        models=tuple(shown(_model(row, present[row.pk]), answers) for row in models),
        dropped=tuple(dropped_without_addresses(Dropped(**record)) for record in crawl.dropped),
    )
    return Published(
        snapshot=snapshot,
        crawl=_facts(crawl),
        read_at=read_at,
        interval_s=interval_s,
        crawl_failure=failure,
        absent={row.prefix: tuple(absent[row.pk]) for row in models},
        sightings=sightings,
        verdict_since={row.prefix: row.verdict_since.timestamp() for row in models if row.verdict == _verdict(snapshot, row)},
        held=held,
        evidence=rates.evidence,
        told=rates.told,
        canaries=rates.canaries,
        answers=answers,
        loading=loading_of(crawl.swarm)
        if any(s.state is PeerState.JOINING for m in snapshot.models for s in m.servers)
        else {},
        snapshot_id=crawl.pk,
    )


def _verdict(snapshot: Snapshot, row: WatchedModel) -> Verdict | None:
    """Another one than the crawl's where a ruling came or ended since: then nobody knows yet since when it holds."""
    model = snapshot.model(row.prefix)
    return coverage(model).verdict if model is not None else None


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
    repository = without_addresses(row.repository) if row.repository else row.repository
    unread = frozenset(row.unread_blocks)
    return Model(row.prefix, row.num_blocks, repository, tuple(servers), unread, row.conflict, row.at_least)


def _server(row: ServerRow) -> Server:
    since = row.state_since.timestamp() if row.state == PeerState.JOINING else None
    return Server(
        peer_id=row.peer_id,
        span=Span(row.start, row.end),
        state=PeerState(row.state),
        record=record_without_addresses(record_from_json(row.announced)),
        expires_at=row.expires_at.timestamp(),
        visit=_visit(row),
        conflict=row.conflict,
        skew_s=row.skew_s,
        loading_since=since,
        overdue=is_overdue(since, row.observed_at.timestamp()),
        slow=is_slow(since, row.observed_at.timestamp()),
    )


def _sighting(row: ServerRow) -> Sighting:
    return Sighting(
        row.state_since.timestamp(), row.first_seen.timestamp(), row.last_seen.timestamp(), row.here_since.timestamp()
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
        version=without_addresses(row.visit_version) if row.visit_version else row.visit_version,
        cache_tokens_left=row.visit_cache_tokens_left,
        span=Span(row.visit_start, row.visit_end) if row.visit_start is not None and row.visit_end is not None else None,
        addresses=tuple(row.visit_addresses),
        via=row.visit_via,
        network=row.visit_network,
    )
