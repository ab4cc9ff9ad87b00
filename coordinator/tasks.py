"""Celery's doors to the coordinator."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from coordinator import followers, leases
from coordinator.desk import housekeeping
from monitor import live, swarms
from monitor.models import Crawl
from monitor.queries import latest_snapshot


@shared_task
def settle_leases() -> None:
    """Closes leases that were seen online or ran out, also while no server asks, and those of models that are seen no more."""
    for swarm in swarms.configured():
        published = latest_snapshot(swarm.name)
        if published is None or published.stale:
            continue
        seen_at = datetime.fromtimestamp(published.snapshot.at, UTC)
        for model in published.snapshot.models:
            if leases.settle(swarm.name, model, seen_at, datetime.now(UTC)):
                live.request_push(swarm.name)
        leases.lapse_others(swarm.name, {model.prefix for model in published.snapshot.models}, datetime.now(UTC))


@shared_task
def forget_old() -> None:
    """Leases stay for as long as their pages are worth a look; what they came to stays in the tallies."""
    now = datetime.now(UTC)
    if Crawl.objects.all().bear_out(now):
        followers.forget(now)
        leases.forget(now)
    housekeeping.tidy(now)
