"""Doors: the stream, the incident feeds, the badges. Validate, call, serialise."""

from __future__ import annotations

import json

from django.conf import settings
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from monitor import queries
from monitor.feeds import badges
from monitor.feeds.answers import NoSuchSwarm, cacheable, problem, swarm_of
from monitor.feeds.incidents import ATOM, JSON_FEED, LISTED, Feed, atom, entry, json_feed
from monitor.feeds.slots import Full, Slots
from monitor.feeds.stream import Stream
from monitor.history.incidents import confirmed
from monitor.limits import address_of
from monitor.models import WatchedModel
from monitor.published import standing
from monitor.swarms import WatchedSwarm

FEED_CACHE = "public, max-age=60, stale-while-revalidate=300, stale-if-error=3600"
BADGE_CACHE = f"public, max-age={badges.MAX_AGE_S}"
COME_BACK_S = 60
MAX_EVENT_ID = 2**63 - 1

slots = Slots()


async def events(request: HttpRequest) -> HttpResponseBase:
    """Server-sent events; `curl -N`. HEAD tells the headers and ends."""
    # As it was asked: what stands before this may answer HEAD like GET, and a stream would then never end.
    asked = request.META["REQUEST_METHOD"]
    if asked not in ("GET", "HEAD"):
        return problem(405, "the stream is read with GET")
    try:
        watched = swarm_of(request)
        free = slots.take(address_of(request))
    except NoSuchSwarm as error:
        return problem(404, str(error))
    except Full as error:
        return problem(429, str(error), COME_BACK_S)
    stream = Stream(watched.name, _last_id(request), free)
    if asked == "HEAD":
        free()
    response = StreamingHttpResponse(stream if asked == "GET" else (), content_type="text/event-stream; charset=utf-8")
    response["Cache-Control"] = "no-cache, no-transform"
    # nginx would collect the events into blocks of 4 KB.
    response["X-Accel-Buffering"] = "no"
    return response


@require_safe
def incidents_atom(request: HttpRequest) -> HttpResponseBase:
    feed = _feed(request)
    return cacheable(request, atom(feed), ATOM, FEED_CACHE, feed.updated.timestamp() if feed.updated else None)


@require_safe
def incidents_json(request: HttpRequest) -> HttpResponseBase:
    feed = _feed(request)
    return cacheable(request, json_feed(feed), JSON_FEED, FEED_CACHE, feed.updated.timestamp() if feed.updated else None)


@require_safe
def badge_svg(request: HttpRequest, prefix: str) -> HttpResponseBase:
    shown = _badge(request, prefix)
    response = cacheable(request, badges.svg(shown).encode(), "image/svg+xml; charset=utf-8", BADGE_CACHE)
    if shown.is_error and response.status_code == 200:
        response.status_code = 404
    return response


@require_safe
def badge_json(request: HttpRequest, prefix: str) -> HttpResponseBase:
    body = json.dumps(badges.shields(_badge(request, prefix)), ensure_ascii=False).encode()
    return cacheable(request, body, "application/json", BADGE_CACHE)


def _badge(request: HttpRequest, prefix: str) -> badges.Badge:
    seen = queries.watch(_swarm_or_404(request).name)
    if seen.published is None:
        return badges.nothing_known(prefix, "unknown", is_error=False)
    model = seen.published.snapshot.model(prefix)
    if model is None:
        words = "not announced" if seen.sees else "unknown"
        return badges.nothing_known(prefix, words, is_error=seen.sees)
    return badges.badge(standing(seen.published, model))


def _feed(request: HttpRequest) -> Feed:
    watched, prefix = _swarm_or_404(request), request.GET.get("model", "")
    rows = confirmed(watched.name)
    if prefix:
        rows = rows.filter(model__prefix=prefix)
        if not WatchedModel.objects.of(watched.name).filter(prefix=prefix).exists():
            raise Http404(f"the monitor has never seen a model with the prefix {prefix!r}")
    return Feed(settings.SEPAL_URL, watched, prefix, tuple(entry(row, settings.SEPAL_URL, watched) for row in rows[:LISTED]))


def _swarm_or_404(request: HttpRequest) -> WatchedSwarm:
    try:
        return swarm_of(request)
    except NoSuchSwarm as error:
        raise Http404(str(error)) from error


def _last_id(request: HttpRequest) -> int | None:
    """Browsers and libraries send the header by themselves; `?last_event_id=` is for what cannot."""
    given = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id", "")
    return int(given) if given.isascii() and given.isdigit() and int(given) <= MAX_EVENT_ID else None
