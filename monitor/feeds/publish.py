"""Puts on the stream what has changed, once, and wakes those who listen. May be run at any time and again."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection, transaction
from redis.exceptions import RedisError

from monitor import queries
from monitor.feeds.changes import Told, changes, now_told, snapshot_data, told_from
from monitor.feeds.events import group_of
from monitor.feeds.models import CrawlTally, Event, StreamHead
from monitor.history.documents import incident_document
from monitor.history.incidents import confirmed
from monitor.models import Crawl, CrawlOutcome
from monitor.published import timely

log = logging.getLogger(__name__)

KEPT = 2_000
"""Events of a swarm that can be said again: hours of a busy swarm, and a megabyte or two."""

BUCKETS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0)
"""Crawls end after four minutes at the latest."""


def publish(swarm: str) -> int:
    """How many events were new."""
    with transaction.atomic():
        _one_writer(swarm)
        counted = _count_crawls(swarm)
        head, _ = StreamHead.objects.get_or_create(swarm=swarm)
        before, still_open = told_from(head.told), _open(swarm)
        if not counted and list(before.open) == still_open and before.stale == _is_stale(swarm):
            return 0  # Also asked for whenever a lease changes: then there is nothing to read a whole swarm for.
        newest = Event.objects.filter(swarm=swarm).order_by("-id").values_list("id", flat=True).first() or 0
        seen = queries.watch(swarm)
        now = now_told(seen, before, still_open)
        told = changes(before, now, snapshot_data(seen), _turns(swarm, before, now))
        at = datetime.now(UTC)
        rows = Event.objects.bulk_create([Event(swarm=swarm, kind=kind.value, at=at, data=data) for kind, data in told])
        head.told = now.as_json()
        head.save()
        _forget(swarm)
    if rows:
        _wake(swarm, newest, rows)
    return len(rows)


def _open(swarm: str) -> list[int]:
    return sorted(confirmed(swarm).filter(ended_before__isnull=True).values_list("id", flat=True))


def _turns(swarm: str, before: Told, now: Told) -> list[dict[str, Any]]:
    """Incidents that opened or closed since, oldest first."""
    opened, closed = set(now.open) - set(before.open), set(before.open) - set(now.open)
    rows = confirmed(swarm).filter(pk__in=opened | closed).order_by("id")
    return [{"change": "closed" if row.pk in closed else "opened", **incident_document(row)} for row in rows]


def _is_stale(swarm: str) -> bool:
    """As `Published.stale`, for the price of two rows."""
    crawls = Crawl.objects.of(swarm)
    success = crawls.newest_success()
    if success is None or success.observed_at is None:
        return True
    late = not timely(success.observed_at.timestamp(), time.time(), float(settings.SEPAL_CRAWL_INTERVAL_S))
    return late or crawls.without_result_after(success).filter(outcome=CrawlOutcome.HELD).exists()


def _count_crawls(swarm: str) -> int:
    """How many were new."""
    tally, _ = CrawlTally.objects.get_or_create(swarm=swarm)
    counted = list(tally.buckets) or [0] * (len(BUCKETS_S) + 1)
    fresh = list(Crawl.objects.of(swarm).filter(pk__gt=tally.counted_until).order_by("pk"))
    for crawl in fresh:
        tally.counted_until = crawl.pk
        tally.succeeded += crawl.outcome == CrawlOutcome.SUCCEEDED
        tally.failed += crawl.outcome == CrawlOutcome.FAILED
        tally.held += crawl.outcome == CrawlOutcome.HELD
        tally.seconds += crawl.duration_s
        counted[bisect_left(BUCKETS_S, crawl.duration_s)] += 1
    tally.buckets = counted
    tally.save()
    return len(fresh)


def _forget(swarm: str) -> None:
    kept = Event.objects.filter(swarm=swarm).order_by("-id").values_list("id", flat=True)[KEPT - 1 : KEPT]
    for oldest in kept:
        Event.objects.filter(swarm=swarm, id__lt=oldest).delete()


def _wake(swarm: str, after: int, rows: list[Event]) -> None:
    """Who listens gets the events themselves. Where Redis is down, listeners find them in the database at their next beat."""
    message = {"type": "events", "after": after, "events": [[row.pk, row.kind, row.data] for row in rows]}
    layer = get_channel_layer()
    assert layer is not None  # settings.py sets one
    try:
        async_to_sync(layer.group_send)(group_of(swarm), message)
    except (RedisError, OSError) as error:
        log.warning("nobody was woken for new events: Redis does not answer (%s)", error)


def _one_writer(swarm: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"monitor.feeds {swarm}"])
