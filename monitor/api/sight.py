"""What this process has read of each swarm, read again only where there has been another crawl.

A door asks for a swarm by the name that stands in its address, and notes with that which snapshot its answer rests on.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest

from monitor import queries, swarms
from monitor.api.caching import LIVE, Rule, note, version_of
from monitor.api.problems import UNKNOWN_MODEL, UNKNOWN_SWARM, Problem
from monitor.published import Published, Watch
from swarm.snapshot import Model

REREAD_AFTER_S = 60.0
"""Also where no crawl has come: servers that left an hour ago drop out of the list by the clock alone."""


@dataclass(frozen=True, slots=True)
class _Read:
    watch: Watch
    marks: tuple[tuple[int, int], str, float]
    """The newest crawls, what the staff has decided, and the time between two crawls."""
    at: float


_lock = threading.Lock()
_reads: dict[str, _Read] = {}


def look(request: HttpRequest, name: str, rule: Rule = LIVE) -> Watch:
    """Everything that is published of the swarm of this name, the first one where it is empty."""
    seen = current(named(name).name)
    note(request, seen, rule)
    return seen


def named(name: str) -> swarms.WatchedSwarm:
    watched = swarms.named(name)
    if watched is None:
        raise Problem(UNKNOWN_SWARM, f"no swarm {name!r} is watched here; /api/v1/swarms lists those that are")
    return watched


def current(swarm: str) -> Watch:
    now, interval_s = time.time(), float(settings.SEPAL_CRAWL_INTERVAL_S)
    marks = (queries.newest_crawls(swarm), queries.ruled(swarm, now), interval_s)
    kept = _reads.get(swarm)
    if kept and kept.marks == marks and 0 <= now - kept.at < REREAD_AFTER_S:
        return kept.watch.as_of(now)
    # One reader at a time: after a crawl everybody asks at once, and they all want the same.
    with _lock:
        kept = _reads.get(swarm)
        if not kept or kept.marks != marks or not 0 <= now - kept.at < REREAD_AFTER_S:
            kept = _reads[swarm] = _Read(queries.watch(swarm, now), marks, now)
    return kept.watch.as_of(now)


def known_version(swarm: str) -> str | None:
    """Without a look into the database: what is known may have aged meanwhile, and that changes the version too."""
    kept = _reads.get(swarm)
    return version_of(kept.watch.as_of(time.time())) if kept else None


def forget() -> None:
    with _lock:
        _reads.clear()


def published_model(seen: Watch, prefix: str) -> tuple[Published, Model]:
    model = seen.published.snapshot.model(prefix) if seen.published else None
    if seen.published is None or model is None:
        raise Problem(
            UNKNOWN_MODEL, f"the swarm announces no model with the prefix {prefix!r}; /api/v1/models lists those it does"
        )
    return seen.published, model
