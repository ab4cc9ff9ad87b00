"""One round of watching a swarm: crawl, judge, look again where that is hard to believe, store.

The crawler is an argument, since only the crawl worker may import hivemind.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from threading import Lock
from typing import Protocol

from monitor import gate, queries, store
from monitor.crawl import CrawlReport
from monitor.models import Crawl
from swarm.snapshot import Snapshot
from swarm.wire.records import ModelRecord

log = logging.getLogger(__name__)

_at_work: dict[str, Lock] = defaultdict(Lock)
"""By swarm, until what was crawled is stored: what is stored last is what was seen last, which no clock can tell."""


class Crawls(Protocol):
    def crawl(self, swarm: str, known: Mapping[str, ModelRecord], previous: Snapshot | None = None) -> CrawlReport | None: ...

    def crawl_elsewhere(
        self, swarm: str, known: Mapping[str, ModelRecord], previous: Snapshot | None = None
    ) -> CrawlReport | None: ...


def run(swarm: str, crawler: Crawls) -> Crawl | None:
    """What was stored; None where another round of this swarm is not over."""
    if not _at_work[swarm].acquire(blocking=False):
        return None
    try:
        return _run(swarm, crawler)
    finally:
        _at_work[swarm].release()


def _run(swarm: str, crawler: Crawls) -> Crawl | None:
    now = time.time()
    known, before = queries.known_models(swarm, now), queries.remembered(swarm, now)
    report = crawler.crawl(swarm, known, before)
    if report is None:
        return None
    if report.snapshot is not None:
        # Without what is held: what counts is what was believed last.
        previous = queries.latest_snapshot(swarm)
        verdict = gate.judge(previous, report, queries.held_back(swarm))
        if isinstance(verdict, gate.Hold):
            again = crawler.crawl_elsewhere(swarm, known, before)
            if again is not None:
                report, verdict = gate.settle(previous, report, verdict, again)
        report = gate.applied(report, verdict)
    if report.failure or report.held:
        # With addresses, which the pages leave out.
        log.warning("crawl of %s %s: %s", swarm, "failed" if report.failure else "held back", report.failure or report.held)
    return store.store(report)
