"""The one door through which crawls enter the history, inside the transaction that stores them.

A crawl that published nothing (it failed, or was held back) leaves its minute unwatched and may make the monitor blind;
it never says anything about a model.

The crawl before is the one that was stored before, whatever time it bears. Where that is later than now, the clock was set
back: minutes that were seen already are seen again, and keep the worse of both; what lies between the two looks, and for
how long, nobody knows. (A crawl of another worker that is merely late is no such thing, and is not stored.)
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from monitor.history import incidents, rollups, samples
from monitor.history.minutes import moment
from monitor.history.rules import Look
from monitor.history.samples import Rates
from monitor.models import CLOCK_JUMPS, Crawl, WatchedModel
from monitor.published import MISSED_INTERVALS
from swarm.snapshot import Snapshot

log = logging.getLogger(__name__)


def record(crawl: Crawl, snapshot: Snapshot | None, rates: Rates) -> None:
    """`snapshot` is what was published; None where nothing was. `rates` are those that are believed. To be called after it is
    stored.

    What the swarm is now matters more than what it was: where the history cannot be written, the crawl is stored without.
    """
    try:
        with transaction.atomic():
            _record(crawl, snapshot, rates)
    except DatabaseError:
        log.exception("the history has no part of the crawl of %s: its minute counts as unwatched", crawl.started_at)


def _record(crawl: Crawl, snapshot: Snapshot | None, rates: Rates) -> None:
    _one_writer(crawl.swarm)
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    before = Crawl.objects.of(crawl.swarm).filter(pk__lt=crawl.pk).newest_success()
    last = _seen_at(before)
    look = _look(snapshot.at if snapshot else crawl.finished_at.timestamp(), last, interval_s, saw=snapshot is not None)
    if snapshot is not None:
        rows = {row.prefix: row for row in WatchedModel.objects.of(crawl.swarm) if snapshot.model(row.prefix)}
        incidents.advance_models(snapshot, rows, last, look.blind_after_s)
        in_a_row = last if not look.set_back and _in_a_row(before, crawl) else None
        samples.write(snapshot, rows, rates, in_a_row, interval_s)
        if look.set_back:
            rollups.count_again_from(moment(snapshot.at))
    incidents.look(crawl.swarm, look, crawl.reason)


def watch_the_clock(swarm: str, now: float) -> None:
    """Where no crawl runs, nobody calls `record`: this opens the blindness that the pages show. It was opened long ago, or the
    clock is ahead, or the site was off: then the next crawl tells."""
    with transaction.atomic():
        _one_writer(swarm)
        last = _seen_at(Crawl.objects.of(swarm).newest_success())
        if last is not None and now - last > CLOCK_JUMPS.total_seconds():
            return
        incidents.look(swarm, _look(now, last, float(settings.SEPAL_CRAWL_INTERVAL_S), saw=False))


def _look(at: float, last: float | None, interval_s: float, *, saw: bool) -> Look:
    return Look(at, saw, last, interval_s, MISSED_INTERVALS * interval_s)


def _seen_at(crawl: Crawl | None) -> float | None:
    return crawl.observed_at.timestamp() if crawl is not None and crawl.observed_at is not None else None


def _one_writer(swarm: str) -> None:
    """Until this transaction ends: a crawl that ends while the clock is being watched must not open what that closes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"monitor.history {swarm}"])


def _in_a_row(before: Crawl | None, crawl: Crawl) -> bool:
    """Whether no crawl was tried in vain between the two."""
    return before is not None and not Crawl.objects.of(crawl.swarm).filter(pk__gt=before.pk, pk__lt=crawl.pk).exists()
