"""Celery's doors. `crawl` and `dial` run on the queue `crawl`, whose one worker owns the peer; the rest on `default`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from django.core.cache import cache

from monitor import live, queries, rounds, swarms
from monitor.alerts.judging import judge
from monitor.feeds.publish import publish
from monitor.history import partitions, record, retention, rollups
from monitor.rates import evidence as rate_evidence
from monitor.rates import rounds as rate_rounds
from monitor.reachability import ANSWER_LIVES_S, answer_key, answer_of, no_answer
from monitor.swarms import WatchedSwarm
from swarm.errors import SwarmError

log = logging.getLogger(__name__)


def _crawler(swarm: WatchedSwarm) -> Any:
    # Imported here, since it imports hivemind and torch: 5 s and 300 MB that no other process should pay for.
    from monitor.crawler import crawler_for

    return crawler_for(swarm.initial_peers, swarm.relay, swarm.look_for)


@shared_task(ignore_result=True)
def crawl(swarm: str = "") -> None:
    watched = swarms.named(swarm)
    if watched is None:
        return

    def push() -> None:
        live.request_push(watched.name)

    if rounds.run(watched.name, _crawler(watched), push) is not None:
        push()


@shared_task(ignore_result=True)
def measure(swarm: str = "") -> None:
    """A few servers each time, one after another: what they really give (`monitor.rates`)."""
    watched = swarms.named(swarm)
    if watched is not None and rate_rounds.run(watched.name, _crawler(watched)):
        live.request_push(watched.name)


@shared_task
def dial(peer_id: str, question: str = "", swarm: str = "") -> dict[str, Any]:
    """Under `question` the answer also goes where `monitor.reachability` waits for it."""
    watched = swarms.named(swarm) or swarms.configured()[0]
    try:
        answer = answer_of(_crawler(watched).dial(peer_id))
    except SwarmError as error:
        log.warning("dial failed: %s", error)
        answer = no_answer("the monitor could not check: its own peer does not reach the swarm")
    if question:
        cache.set(answer_key(question), answer, timeout=ANSWER_LIVES_S)
    return answer


@shared_task(ignore_result=True)
def push(swarm: str) -> None:
    live.push(swarm)
    if publish(swarm):
        judge(swarm)


@shared_task(ignore_result=True)
def watch_freshness() -> None:
    """Nothing is stored when no crawl runs, so that nobody would learn that the page has aged: this pushes when it has."""
    for swarm in swarms.configured():
        seen = queries.watch(swarm.name)
        key, shown = f"freshness.{seen.swarm}", (seen.sees, seen.failing_since)
        if seen.published is None:
            # For how long nobody has reported changes all the while.
            live.request_push(seen.swarm)
        elif cache.get(key) != shown:
            cache.set(key, shown, timeout=None)
            live.request_push(seen.swarm)


@shared_task(ignore_result=True)
def remember() -> None:
    """Minutes -> hours and days. Where the watching itself has stopped, that becomes an incident of the monitor."""
    now = datetime.now(UTC)
    for swarm in swarms.configured():
        record.watch_the_clock(swarm.name, now.timestamp())
    partitions.maintain(now)
    rollups.roll_up(now)
    # Also without a push, which is lost where Redis was away, and which a swarm that nothing crawls never gets.
    for swarm in swarms.configured():
        publish(swarm.name)
        judge(swarm.name)


@shared_task(ignore_result=True)
def forget() -> None:
    retention.forget(datetime.now(UTC))
    rate_evidence.forget(datetime.now(UTC))
    if partitions.strays():
        log.warning("%d samples lie outside the partition of their day", partitions.strays())
