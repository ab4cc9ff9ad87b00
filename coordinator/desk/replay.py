"""The pages as they were at an earlier check, from the samples of its minute. What a sample does not keep is not shown as
known: names, versions, visits. Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitor.history.models import ModelMinute, PeerSample
from monitor.models import Crawl, WatchedModel
from monitor.published import CrawlFacts, Published, Watch
from swarm.snapshot import Model, PeerState, Server, Snapshot
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

_ANNOUNCED = {PeerState.JOINING: ServerState.JOINING, PeerState.LEAVING: ServerState.OFFLINE}


@dataclass(frozen=True, slots=True)
class Replayed:
    """`earlier` and `later` are ids of the checks around it, where there are any."""

    crawl: Crawl
    seen: Watch
    earlier: int | None
    later: int | None


def replayed(crawl: Crawl, interval_s: float) -> Replayed | None:
    """None where the check published nothing, or its minute is no longer kept."""
    if crawl.observed_at is None:
        return None
    minute = crawl.observed_at.replace(second=0, microsecond=0)
    models = _models(crawl.swarm, minute)
    if not models:
        return None
    at = crawl.observed_at.timestamp()
    facts = CrawlFacts(crawl.started_at.timestamp(), crawl.finished_at.timestamp(), bootstraps=crawl.bootstraps)
    published = Published(Snapshot(crawl.swarm, at, models), facts, read_at=at, interval_s=interval_s)
    others = Crawl.objects.of(crawl.swarm).filter(observed_at__isnull=False)
    earlier = others.filter(observed_at__lt=crawl.observed_at).order_by("-observed_at").first()
    later = others.filter(observed_at__gt=crawl.observed_at).order_by("observed_at").first()
    return Replayed(
        crawl,
        Watch(crawl.swarm, at, interval_s, published, facts),
        earlier.pk if earlier else None,
        later.pk if later else None,
    )


def _models(swarm: str, minute: datetime) -> tuple[Model, ...]:
    rows = {row.pk: row for row in WatchedModel.objects.of(swarm)}
    unread = dict(ModelMinute.objects.filter(model_id__in=rows, ts=minute).values_list("model_id", "unread"))
    samples = PeerSample.objects.filter(model_id__in=unread, ts=minute).exclude(state=PeerState.GONE.value)
    servers: dict[int, list[Server]] = {pk: [] for pk in unread}
    for model, peer, start, end, state, throughput in samples.values_list(
        "model_id", "peer__peer_id", "start", "end", "state", "throughput"
    ):
        servers[model].append(_server(peer, Span(start, end), PeerState(state), throughput))
    return tuple(
        Model(
            row.prefix,
            row.num_blocks,
            row.repository,
            tuple(sorted(servers[pk], key=lambda server: (server.span, server.peer_id))),
            frozenset(block for span in unread[pk] for block in span if block < row.num_blocks),
            # Of a size that nobody had named, the minute holds the block after the last as unread.
            at_least=any(row.num_blocks in span for span in unread[pk]),
        )
        for pk, row in sorted(rows.items(), key=lambda item: item[1].prefix)
        if pk in unread
    )


def _server(peer_id: str, span: Span, state: PeerState, throughput: float | None) -> Server:
    record = ServerRecord(_ANNOUNCED.get(state, ServerState.ONLINE), throughput, span)
    return Server(peer_id, span, state, record, expires_at=0.0)
