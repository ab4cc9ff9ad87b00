"""Doors for those who watch the monitor: Prometheus, and whoever only wants to know that it still sees."""

from __future__ import annotations

import math
import time

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from monitor import queries
from monitor.api import sight
from monitor.api.caching import SCRAPE, note
from monitor.api.middleware import conditional
from monitor.exposition import exposition, format_of
from monitor.extensions import registered
from monitor.feeds.tallies import CrawlCollector
from monitor.published import MISSED_INTERVALS, ago
from monitor.queues import QueueCollector
from monitor.swarms import named


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Of one swarm, so that series carry no label that most sites do not need: others are `/metrics?swarm=NAME`."""
    swarm, wanted = _swarm(request), format_of(request.headers.get("Accept", ""))
    others = [extension.collector(swarm) for extension in registered() if extension.collector is not None]
    seen = sight.current(swarm)
    text = exposition(seen, [CrawlCollector(swarm), QueueCollector(), *others], wanted)
    response = HttpResponse(text, content_type=wanted.content_type)
    response["Vary"] = "Accept, Accept-Encoding"
    note(request, seen, SCRAPE)
    return conditional(request, response)


@require_safe
def fresh(request: HttpRequest) -> HttpResponse:
    """200 where the swarm was seen within `max_age` seconds (three crawl intervals where none is given), else 503. For outside
    watchers; nothing but the age is read."""
    seen_at, now = queries.last_success_at(_swarm(request)), time.time()
    limit_s = _max_age_s(request)
    if limit_s is None:
        return _told(400, "max_age must be a number of seconds, 1 or more")
    if seen_at is None:
        return _told(503, "the swarm has not been seen yet")
    age_s = max(0.0, now - seen_at)
    if seen_at - now > limit_s:
        return _told(503, f"the last look is dated {ago(seen_at - now)} ahead: the clock was set back since")
    return _told(200 if age_s <= limit_s else 503, f"the swarm was seen {ago(age_s)} ago; the limit is {limit_s:g} s")


def _max_age_s(request: HttpRequest) -> float | None:
    given = request.GET.get("max_age", "")
    if not given:
        return MISSED_INTERVALS * float(settings.SEPAL_CRAWL_INTERVAL_S)
    try:
        limit_s = float(given)
    except ValueError:
        return None
    return limit_s if limit_s >= 1 and math.isfinite(limit_s) else None


def _swarm(request: HttpRequest) -> str:
    watched = named(request.GET.get("swarm", ""))
    if watched is None:
        raise Http404("no such swarm is watched here")
    return watched.name


def _told(status: int, words: str) -> HttpResponse:
    response = HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = "no-store"
    return response
