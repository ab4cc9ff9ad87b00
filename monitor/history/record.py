"""The one door through which crawls enter the history, inside the transaction that stores them.

A crawl that published nothing (it failed, or was held back) leaves its minute unwatched and may make the monitor blind;
it never says anything about a model.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from monitor.history import incidents, samples
from monitor.models import Crawl, WatchedModel
from monitor.published import MISSED_INTERVALS
from swarm.snapshot import Snapshot

log = logging.getLogger(__name__)

LATE_S = 600.0
"""A crawl takes four minutes at most. What is older than this was not late: the clock has been set back."""


def record(crawl: Crawl, snapshot: Snapshot | None) -> None:
    """`snapshot` is what was published; None where nothing was. To be called after it is stored.

    What the swarm is now matters more than what it was: where the history cannot be written, the crawl is stored without.
    """
    try:
        with transaction.atomic():
            _record(crawl, snapshot)
    except DatabaseError:
        log.exception("the history has no part of the crawl of %s: its minute counts as unwatched", crawl.started_at)


def _record(crawl: Crawl, snapshot: Snapshot | None) -> None:
    _one_writer(crawl.swarm)
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    blind_after_s = MISSED_INTERVALS * interval_s
    last = samples.last_observed_at(crawl.swarm)
    if snapshot is None:
        at = crawl.finished_at.timestamp()
        last = _unless_ahead(last, at)
        incidents.look(crawl.swarm, at, last, interval_s, blind_after_s, saw=False, why=crawl.reason)
        return
    if last is not None and snapshot.at < last:
        if last - snapshot.at <= LATE_S:
            return  # An older crawl that was stored late: its minutes are already told by a newer one.
        last = None  # The clock was set back. What was "last" is in the future, and says nothing.
    rows = {row.prefix: row for row in WatchedModel.objects.of(crawl.swarm) if snapshot.model(row.prefix)}
    incidents.advance_models(snapshot, rows, last, blind_after_s)
    in_a_row = last if _in_a_row(crawl, last) else None
    samples.write(snapshot, rows, in_a_row, interval_s)
    incidents.look(crawl.swarm, snapshot.at, last, interval_s, blind_after_s, saw=True)


def watch_the_clock(swarm: str, now: float) -> None:
    """Where no crawl runs, nobody calls `record`: this opens the blindness that the pages show."""
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    with transaction.atomic():
        _one_writer(swarm)
        last = _unless_ahead(samples.last_observed_at(swarm), now)
        incidents.look(swarm, now, last, interval_s, MISSED_INTERVALS * interval_s, saw=False)


def _unless_ahead(last: float | None, now: float) -> float | None:
    """What was seen "last" says nothing where the clock was set back since."""
    return None if last is not None and last - now > LATE_S else last


def _one_writer(swarm: str) -> None:
    """Until this transaction ends: a crawl that ends while the clock is being watched must not open what that closes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"monitor.history {swarm}"])


def _in_a_row(crawl: Crawl, last: float | None) -> bool:
    """Whether no crawl was tried in vain since the one that saw the swarm at `last`."""
    if last is None:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM monitor_crawl WHERE swarm = %s AND id <> %s AND outcome <> 'succeeded'"
            " AND finished_at > to_timestamp(%s) AND started_at > to_timestamp(%s))",
            # The second says the same, and is what the index is sorted by.
            [crawl.swarm, crawl.pk, last, last - LATE_S],
        )
        (failed,) = cursor.fetchone()
    return not failed
