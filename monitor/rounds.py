"""One round of watching a swarm: crawl, judge, look again where that is hard to believe, store.

The crawler is an argument, since only the crawl worker may import hivemind.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Protocol

from monitor import gate, queries, store
from monitor.crawl import CrawlReport
from monitor.models import Crawl
from monitor.progress import Tell, untold
from monitor.sizes import Witnesses
from monitor.telling import telling
from swarm.snapshot import Snapshot
from swarm.wire.records import ModelRecord

log = logging.getLogger(__name__)

_at_work: dict[str, Lock] = defaultdict(Lock)
"""By swarm, until what was crawled is stored: what this process stores last is what it saw last, which no clock can tell. Of
other processes only what they store is known (`store.store_in_turn`)."""


class Crawls(Protocol):
    def crawl(
        self,
        swarm: str,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None = None,
        tell: Tell = ...,
        witnesses: Witnesses = ...,
    ) -> CrawlReport | None: ...

    def crawl_elsewhere(
        self,
        swarm: str,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None = None,
        witnesses: Witnesses = ...,
    ) -> CrawlReport | None: ...


def run(swarm: str, crawler: Crawls, push: Callable[[], None] | None = None) -> Crawl | None:
    """What was stored; None where another round of this swarm is not over, or that of another worker overtook this one. Until
    something is published, how far the crawl has come is told, and `push` called for it."""
    if not _at_work[swarm].acquire(blocking=False):
        return None
    try:
        if push is None or queries.last_success_at(swarm) is not None:
            return _run(swarm, crawler, untold)
        with telling(swarm, push) as tell:
            return _run(swarm, crawler, tell)
    finally:
        _at_work[swarm].release()


def _run(swarm: str, crawler: Crawls, tell: Tell) -> Crawl | None:
    now = time.time()
    _, since = queries.newest_crawls(swarm)
    known, before = queries.known_models(swarm, now), queries.remembered(swarm, now)
    witnesses = queries.witnesses(swarm, now)
    report = crawler.crawl(swarm, known, before, tell, witnesses)
    if report is None:
        return None
    if report.snapshot is not None:
        # Without what is held: what counts is what was believed last.
        previous = queries.latest_snapshot(swarm)
        held = queries.held_back(swarm)
        verdict = gate.judge(previous, report, held)
        if isinstance(verdict, gate.Hold):
            again = crawler.crawl_elsewhere(swarm, known, before, witnesses)
            if again is not None:
                report, verdict = gate.settle(previous, report, verdict, again, held)
        report = gate.applied(report, verdict)
    if report.failure or report.held:
        # With addresses, which the pages leave out.
        log.warning("crawl of %s %s: %s", swarm, "failed" if report.failure else "held back", report.failure or report.held)
    stored = store.store_in_turn(report, since)
    if stored is None:
        log.warning("crawl of %s left out: another worker saw the swarm later, and was done earlier; one is enough", swarm)
    return stored
