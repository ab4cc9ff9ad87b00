"""Doors of the pages: what is asked for, from the database, through a template. None of them needs Redis or the DHT."""

from __future__ import annotations

import time

from django.conf import settings
from django.core.cache import cache
from django.db import Error as DatabaseError
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from monitor import live, queries
from monitor.published import MISSED_INTERVALS, ago
from monitor.swarms import WatchedSwarm, configured, named


@require_safe
def overview(request: HttpRequest, swarm: str = "") -> HttpResponse:
    return _page(request, "overview", swarm)


@require_safe
def model(request: HttpRequest, prefix: str, swarm: str = "") -> HttpResponse:
    return _page(request, live.model_key(prefix), swarm)


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """For people and load balancers: one line a check, 503 where one fails."""
    database = _database_fault()
    checks = {"db": database, "redis": _redis_fault(), "crawl": _crawl_fault() if not database else "not known without db"}
    lines = [f"[-]{name} {fault}\n" if fault else f"[+]{name} ok\n" for name, fault in checks.items()]
    return HttpResponse("".join(lines), status=503 if any(checks.values()) else 200, content_type="text/plain")


def _swarm(name: str) -> WatchedSwarm:
    watched = named(name)
    if watched is None:
        raise Http404(f"no swarm {name!r} is watched here")
    return watched


def _page(request: HttpRequest, key: str, swarm: str) -> HttpResponse:
    """The whole page, or with `?fragment` only what a page that is open already has to catch up with."""
    watched = _swarm(swarm)
    rendered = live.render(key, queries.watch(watched.name))
    status = 200 if rendered.found else 404
    if "fragment" in request.GET:
        response = HttpResponse(rendered.message, status=status)
    else:
        others = [other for other in configured() if other != watched]
        page_key = live.page_of(watched.name, key)
        context = {"rendered": rendered, "page_key": page_key, "swarm": watched, "other_swarms": others}
        response = render(request, "monitor/page.html", context, status=status)
    response["Cache-Control"] = "no-cache"
    return response


def _database_fault() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def _redis_fault() -> str:
    try:
        cache.set("readyz", 1, timeout=10)
    except RedisError as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def _crawl_fault() -> str:
    at = queries.last_success_at(settings.SEPAL_SWARM)
    if at is None:
        return "none has succeeded yet"
    age_s = time.time() - at
    limit_s = MISSED_INTERVALS * settings.SEPAL_CRAWL_INTERVAL_S
    return f"last success {ago(age_s)} ago, expected every {settings.SEPAL_CRAWL_INTERVAL_S:g} s" if age_s > limit_s else ""
